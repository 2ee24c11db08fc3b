-- How many calls were allowed in the newest window of each quota. `key` is the digest of whose quota it is and of what it counts;
-- the limit stands in the directory, so one that is raised goes on counting. `at` says when a row may go. Rows change with
-- nearly every call and no index holds what changes, so that room in their page is all an update needs.
CREATE TABLE quota_counters (
    tenant_id uuid   NOT NULL,
    key       bytea  NOT NULL,
    start     bigint NOT NULL,
    count     bigint NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (tenant_id, key)
) WITH (fillfactor = 50);
