-- What people are asked before an action, as JSON, and beside it what it is looked up by. A row is written anew with each vote
-- and when the approval is spent; what was said when stands in the chain. `expires_at` counts while the status is one that can
-- still change, so only such rows are in the index that expired ones are found by.
CREATE TABLE approvals (
    tenant_no  INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    agent      BLOB    NOT NULL,
    status     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX approvals_status
    ON approvals (tenant_no, status, id);

CREATE INDEX approvals_open
    ON approvals (expires_at)
    WHERE status IN ('pending', 'approved');
