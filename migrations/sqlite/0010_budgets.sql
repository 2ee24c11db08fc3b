-- What may be spent, and what of it is held, as JSON, and beside it what it is looked up by. Rows are written anew with each move;
-- what moved them stands in the chain, and balances can be counted again from there. Of one scope and unit one budget at most is
-- open. A reservation is in the index of those that end as long as it is held.
CREATE TABLE budgets (
    tenant_no INTEGER NOT NULL,
    id        BLOB    NOT NULL,
    scope     TEXT    NOT NULL,
    unit      TEXT    NOT NULL,
    is_open   INTEGER NOT NULL,
    value     TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX budgets_open
    ON budgets (tenant_no, scope, unit)
    WHERE is_open = 1;

CREATE TABLE reservations (
    tenant_no  INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    agent      BLOB    NOT NULL,
    status     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX reservations_held
    ON reservations (tenant_no, expires_at)
    WHERE status = 'active';

-- Which run started which, so that a child spends from its parent's budget also when it does not name it again.
CREATE TABLE run_links (
    tenant_no INTEGER NOT NULL,
    run_id    TEXT    NOT NULL,
    parent    TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, run_id)
) STRICT, WITHOUT ROWID;

-- Answers that are given again to whoever repeats a request under the same key. `request` is the digest of what was asked.
CREATE TABLE replies (
    tenant_no INTEGER NOT NULL,
    caller    BLOB    NOT NULL,
    key       TEXT    NOT NULL,
    request   BLOB    NOT NULL,
    bytes     BLOB    NOT NULL,
    PRIMARY KEY (tenant_no, caller, key)
) STRICT, WITHOUT ROWID;
