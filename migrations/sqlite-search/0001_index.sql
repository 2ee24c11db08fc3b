-- The search index: a file of its own beside the database. It is made from the ledger, and made again if it is gone or damaged, so a
-- change of this schema needs no step of its own: the file is thrown away.

-- Says whose file this is to whoever opens it ("CSix").
PRAGMA application_id = 1129539960;

-- Short numbers of tenants, which are not those of the database: another database may come to stand under the same name.
CREATE TABLE search_tenants (
    tenant    INTEGER PRIMARY KEY,
    tenant_id BLOB    NOT NULL UNIQUE
) STRICT;

-- The blocks that are in the index, or that somebody is about to put there: those have no `end_hash` yet. `made_at_seq` and
-- `made_at_hash` are of the entry with which the ledger ended before the block was made: a backup of the ledger that is put back
-- may not have it, and then has again what was erased until then.
CREATE TABLE search_blocks (
    tenant        INTEGER NOT NULL,
    block         INTEGER NOT NULL,
    token         INTEGER NOT NULL,
    claimed_until INTEGER NOT NULL,
    end_hash      BLOB,
    made_at_seq   INTEGER,
    made_at_hash  BLOB,
    PRIMARY KEY (tenant, block)
) STRICT, WITHOUT ROWID;

-- Which decisions of a block have a term. The block comes before the term, so that a block is written in one place; a search
-- looks a term up in each block.
CREATE TABLE search_postings (
    tenant INTEGER NOT NULL,
    block  INTEGER NOT NULL,
    term   INTEGER NOT NULL,
    places BLOB    NOT NULL,
    PRIMARY KEY (tenant, block, term)
) STRICT, WITHOUT ROWID;
