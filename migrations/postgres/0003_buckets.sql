-- Token buckets that several gateways share. Tokens come back by computing, so a bucket that nobody asks for costs nothing,
-- and one that is full need not be there at all: a missing row is a full bucket. `capacity` and `refill_per_second` are those
-- of the last lease: by them it is known when a row may go.
--
-- `lent` is what the last lease got. It is kept only to be handed back by the statement that wrote it: RETURNING sees the row
-- as it has become, not how full it was before.
CREATE TABLE buckets (
    tenant_id         uuid             NOT NULL,
    owner             text             COLLATE "C" NOT NULL,
    capacity          bigint           NOT NULL,
    refill_per_second double precision NOT NULL,
    level             double precision NOT NULL,
    at                bigint           NOT NULL,
    lent              bigint           NOT NULL,
    PRIMARY KEY (tenant_id, owner)
) WITH (fillfactor = 50);
