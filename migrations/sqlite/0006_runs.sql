-- What runs have seen, where a tenant wants it kept. A run that another one started has the row of whoever began the family as
-- its `root`, and the level stands there only.
CREATE TABLE runs (
    tenant_no INTEGER NOT NULL,
    run_id    TEXT    NOT NULL,
    root      TEXT    NOT NULL,
    worst     TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, run_id)
) STRICT, WITHOUT ROWID;
