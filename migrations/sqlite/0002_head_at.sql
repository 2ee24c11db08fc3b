-- When the last entry of each chain was recorded. Time in a chain never runs backwards, so whoever adds an entry has to
-- know it; beside the head it costs no look-up.
ALTER TABLE tenants ADD COLUMN head_at INTEGER NOT NULL DEFAULT 0;

UPDATE tenants
SET head_at = COALESCE(
    (SELECT audit_events.at
     FROM audit_events
     WHERE audit_events.entry = (tenants.tenant_no << 40) | tenants.head_seq),
    0
);
