-- When the last entry of each chain was recorded. Time in a chain never runs backwards, so whoever adds an entry has to
-- know it; beside the head it costs no look-up.
ALTER TABLE tenants ADD COLUMN head_at bigint NOT NULL DEFAULT 0;

UPDATE tenants
SET head_at = audit_events.at
FROM audit_events
WHERE audit_events.tenant_id = tenants.tenant_id
  AND audit_events.seq = tenants.head_seq;

ALTER TABLE tenants ALTER COLUMN head_at DROP DEFAULT;
