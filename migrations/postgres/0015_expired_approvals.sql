-- Approvals that have expired are looked for over all tenants at once, and those first that expired first. It is no key, so it need not
-- begin with the tenant.
DROP INDEX approvals_open;

CREATE INDEX approvals_open
    ON approvals (expires_at)
    WHERE status IN ('pending', 'approved');
