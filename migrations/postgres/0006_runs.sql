-- What runs have seen, where a tenant wants it kept. A run that another one started has the row of whoever began the family as
-- its `root`, and the level stands there only.
CREATE TABLE runs (
    tenant_id uuid NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    root      text COLLATE "C" NOT NULL,
    worst     text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, run_id)
);
