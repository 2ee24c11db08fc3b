-- How many calls were allowed in the newest window of each quota. `key` is the digest of whose quota it is and of what it counts;
-- the limit stands in the directory, so one that is raised goes on counting. `at` says when a row may go.
CREATE TABLE quota_counters (
    tenant_no INTEGER NOT NULL,
    key       BLOB    NOT NULL,
    start     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, key)
) STRICT, WITHOUT ROWID;
