-- Which entry answered a request is found by a digest of tenant, agent and request id, and kept with the decision. What was recorded
-- last is in memory; everything up to `tenants.sorted_seq` is in runs, which are written once, in order, and merged behind the
-- commits: `crates/store-sqlite/src/requests.rs` says how. So a commit scatters no rows. It can all be made again from `decisions`:
-- with no run and every `sorted_seq` at 0 that is what happens when the database is opened.
ALTER TABLE decisions ADD COLUMN request BLOB;
ALTER TABLE tenants ADD COLUMN sorted_seq INTEGER NOT NULL DEFAULT 0;

-- A run counts from when it is whole until it is replaced; one that does not count is being written or removed.
CREATE TABLE request_runs (
    run      INTEGER PRIMARY KEY,
    level    INTEGER NOT NULL,
    is_whole INTEGER NOT NULL
) STRICT;

-- page = run << 32 | number of the page in the run.
CREATE TABLE request_pages (
    page  INTEGER PRIMARY KEY,
    bytes BLOB    NOT NULL
) STRICT;

-- The table `requests` is of versions before this one. It is emptied when the database is opened, and stays empty.
