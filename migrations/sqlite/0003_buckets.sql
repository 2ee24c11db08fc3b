-- Token buckets of which tokens are lent. Tokens come back by computing, so a bucket that nobody asks for costs nothing, and
-- one that is full need not be there at all: a missing row is a full bucket. `capacity` and `refill_per_second` are those of
-- the last lease: by them it is known when a row may go.
--
-- `lent` is what the last lease got. It is kept only to be handed back by the statement that wrote it: RETURNING sees the row
-- as it has become, not how full it was before.
CREATE TABLE buckets (
    tenant_id         BLOB    NOT NULL,
    owner             TEXT    NOT NULL,
    capacity          INTEGER NOT NULL,
    refill_per_second REAL    NOT NULL,
    level             REAL    NOT NULL,
    at                INTEGER NOT NULL,
    lent              INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, owner)
) STRICT, WITHOUT ROWID;
