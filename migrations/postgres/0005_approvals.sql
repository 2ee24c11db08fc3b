-- What people are asked before an action, as JSON, and beside it what it is looked up by. A row is written anew with each vote
-- and when the approval is spent; what was said when stands in the chain. `expires_at` counts while the status is one that can
-- still change, so only such rows are in the index that expired ones are found by.
CREATE TABLE approvals (
    tenant_id  uuid   NOT NULL,
    id         uuid   NOT NULL,
    agent      uuid   NOT NULL,
    status     text   COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE INDEX approvals_status
    ON approvals (tenant_id, status, id);

CREATE INDEX approvals_open
    ON approvals (tenant_id, expires_at)
    WHERE status IN ('pending', 'approved');
