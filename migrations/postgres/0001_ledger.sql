-- The ledger and the directories of all tenants.
--
-- Every primary key and every unique index begins with tenant_id, so that the tables can be distributed by tenant over
-- many machines. (tenant_id, seq) is the primary key of all rows of an entry, so a fork cannot be stored. There are no
-- foreign keys: one statement writes all rows of an entry.
--
-- Texts that stand in a key are compared byte by byte (COLLATE "C"): the order of a language changes with the system's
-- libraries, and an index that was built with another order finds nothing.

-- One row a tenant: where its chain ends. It is locked, read and replaced by every commit, so the pages are left nearly
-- empty: the next version of a row fits beside the last one, no index has to be touched (a HOT update), and the versions
-- that nobody sees any more are cleared away by whoever comes next.
CREATE TABLE tenants (
    tenant_id uuid   NOT NULL PRIMARY KEY,
    head_seq  bigint NOT NULL CHECK (head_seq >= 0),
    head_hash bytea  NOT NULL,
    revision  bigint NOT NULL
) WITH (fillfactor = 10);

-- The chain: one row a ledger entry of any kind. The body is text and not jsonb, because its bytes are hashed.
CREATE TABLE audit_events (
    tenant_id uuid   NOT NULL,
    seq       bigint NOT NULL,
    at        bigint NOT NULL,
    kind      text   NOT NULL,
    prev      bytea  NOT NULL,
    hash      bytea  NOT NULL,
    body      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);

-- What decisions are searched by, and the digest of the ask where it can come again.
CREATE TABLE decisions (
    tenant_id uuid   NOT NULL,
    seq       bigint NOT NULL,
    id        uuid   NOT NULL,
    agent     uuid   NOT NULL,
    tool      text   COLLATE "C" NOT NULL,
    action    text   COLLATE "C" NOT NULL,
    reason    text   COLLATE "C" NOT NULL,
    run_id    text   COLLATE "C",
    ask       bytea,
    PRIMARY KEY (tenant_id, seq)
);

-- The id is a UUIDv7: within a tenant its index grows at the right edge.
CREATE UNIQUE INDEX decisions_id
    ON decisions (tenant_id, id);

-- The exact bytes that were handed to the caller. Apart from decisions, so that a search does not wade through them.
CREATE TABLE receipts (
    tenant_id uuid   NOT NULL,
    seq       bigint NOT NULL,
    bytes     bytea  NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);

-- Long bodies and receipts move out of the row as they are. To compress them first would cost a commit time while others
-- wait for its lock, and what they are full of, digests and ids, does not compress.
ALTER TABLE audit_events ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE receipts ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Idempotency: which entry answered a request. A table of its own and not an index on decisions: asks without a request id
-- cost nothing here, and these are the only rows that a commit scatters.
CREATE TABLE requests (
    tenant_id  uuid   NOT NULL,
    agent      uuid   NOT NULL,
    request_id text   COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (tenant_id, agent, request_id)
);

-- Which entry tells what became of a decision: at most one a decision.
CREATE TABLE outcomes (
    tenant_id uuid   NOT NULL,
    decision  uuid   NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (tenant_id, decision)
);

-- The nouns of each tenant as JSON. It remembers the snapshot and is read when a gateway starts or has to catch up, never
-- for a decision.
CREATE TABLE directory (
    tenant_id uuid NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    name      text COLLATE "C",
    value     text NOT NULL,
    PRIMARY KEY (tenant_id, kind, id)
);

CREATE UNIQUE INDEX directory_name
    ON directory (tenant_id, kind, name)
    WHERE name IS NOT NULL;

-- What was recorded is not rewritten, also not by hand. None of these fires on INSERT: a commit never pays for them.
CREATE FUNCTION refuse_to_rewrite() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'rows of `%` are not rewritten or deleted', TG_TABLE_NAME; END $$;

CREATE TRIGGER tenants_are_not_deleted
    BEFORE DELETE ON tenants
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER audit_events_are_not_rewritten
    BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER decisions_are_not_rewritten
    BEFORE UPDATE OR DELETE ON decisions
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER receipts_are_not_rewritten
    BEFORE UPDATE OR DELETE ON receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();

-- TRUNCATE fires no trigger of a row.
CREATE TRIGGER tenants_are_not_truncated
    BEFORE TRUNCATE ON tenants
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER audit_events_are_not_truncated
    BEFORE TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER decisions_are_not_truncated
    BEFORE TRUNCATE ON decisions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER receipts_are_not_truncated
    BEFORE TRUNCATE ON receipts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite();
