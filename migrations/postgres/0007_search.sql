-- The search index: made from the ledger after the commit, by whichever gateway has time, and made again if it is gone. So it is
-- not logged: a crash of the server empties it, and so does a standby that takes over.

-- The blocks that are in the index, or that a gateway is about to put there: those have no `end_hash` yet.
CREATE UNLOGGED TABLE search_blocks (
    tenant_id     uuid   NOT NULL,
    block         bigint NOT NULL,
    token         bigint NOT NULL,
    claimed_until bigint NOT NULL,
    end_hash      bytea,
    PRIMARY KEY (tenant_id, block)
);

-- Which decisions of a block have a term. The block comes before the term, so that a block is written in one place; a search
-- looks a term up in each block.
CREATE UNLOGGED TABLE search_postings (
    tenant_id uuid   NOT NULL,
    block     bigint NOT NULL,
    term      bigint NOT NULL,
    places    bytea  NOT NULL,
    PRIMARY KEY (tenant_id, block, term)
);
