-- What may be spent, and what of it is held, as JSON, and beside it what it is looked up by. Rows are written anew with each move;
-- what moved them stands in the chain, and balances can be counted again from there. Of one scope and unit one budget at most is
-- open. A reservation is in the index of those that end as long as it is held. A budget is rewritten by every batch that moves
-- it, so its pages leave room for that.
CREATE TABLE budgets (
    tenant_id uuid    NOT NULL,
    id        uuid    NOT NULL,
    scope     text    COLLATE "C" NOT NULL,
    unit      text    COLLATE "C" NOT NULL,
    is_open   boolean NOT NULL,
    value     text    COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX budgets_open
    ON budgets (tenant_id, scope, unit)
    WHERE is_open;

CREATE TABLE reservations (
    tenant_id  uuid   NOT NULL,
    id         uuid   NOT NULL,
    agent      uuid   NOT NULL,
    status     text   COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE INDEX reservations_held
    ON reservations (tenant_id, expires_at)
    WHERE status = 'active';

-- Which run started which, so that a child spends from its parent's budget also when it does not name it again.
CREATE TABLE run_links (
    tenant_id uuid NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    parent    text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, run_id)
);

-- Answers that are given again to whoever repeats a request under the same key. `request` is the digest of what was asked.
CREATE TABLE replies (
    tenant_id uuid  NOT NULL,
    caller    uuid  NOT NULL,
    key       text  COLLATE "C" NOT NULL,
    request   bytea NOT NULL,
    bytes     bytea NOT NULL,
    PRIMARY KEY (tenant_id, caller, key)
);
