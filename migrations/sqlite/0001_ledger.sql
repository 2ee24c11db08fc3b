-- The ledger and the directories of all tenants.
--
-- Rows of the ledger are clustered by one integer: entry = tenant_no << 40 | seq. So (tenant, seq) is unique by the
-- primary key itself and a fork cannot be stored, and a commit appends to the right edge of each tenant's range instead
-- of maintaining an index. There are no foreign keys: one writer writes all rows of an entry in one transaction.

-- Says whose file this is to whoever opens it ("CSgn").
PRAGMA application_id = 1129539438;

-- One row a tenant: where its chain ends. tenant_no is short because it stands in every key below.
CREATE TABLE tenants (
    tenant_no INTEGER PRIMARY KEY CHECK (tenant_no BETWEEN 1 AND 8388607),
    tenant_id BLOB    NOT NULL UNIQUE,
    head_seq  INTEGER NOT NULL CHECK (head_seq BETWEEN 0 AND 1099511627775),
    head_hash BLOB    NOT NULL,
    revision  INTEGER NOT NULL
) STRICT;

-- The chain: one row a ledger entry of any kind. The body stands last, so that reading the rest of a row does not
-- touch the pages that a long body overflows to.
CREATE TABLE audit_events (
    entry INTEGER PRIMARY KEY,
    kind  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    prev  BLOB    NOT NULL,
    hash  BLOB    NOT NULL,
    body  TEXT    NOT NULL
) STRICT;

-- What decisions are searched by, and the digest of the ask where it can come again. The id is a UUIDv7: its index grows
-- at the right edge too.
CREATE TABLE decisions (
    entry  INTEGER PRIMARY KEY,
    id     BLOB    NOT NULL UNIQUE,
    agent  BLOB    NOT NULL,
    tool   TEXT    NOT NULL,
    action TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    run_id TEXT,
    ask    BLOB
) STRICT;

-- The exact bytes that were handed to the caller. Apart from decisions, so that a search does not wade through them.
CREATE TABLE receipts (
    entry INTEGER PRIMARY KEY,
    bytes BLOB    NOT NULL
) STRICT;

-- Idempotency: which entry answered a request. It begins with the tenant, so that one tenant's request ids say nothing
-- about another's. A table of its own and not an index on decisions: asks without a request id cost nothing here, the
-- agent's rows lie together, and they are short, because these are the only rows that a commit scatters.
CREATE TABLE requests (
    tenant_no  INTEGER NOT NULL,
    agent      BLOB    NOT NULL,
    request_id TEXT    NOT NULL,
    entry      INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, agent, request_id)
) STRICT, WITHOUT ROWID;

-- Which entry tells what became of a decision: at most one a decision.
CREATE TABLE outcomes (
    tenant_no INTEGER NOT NULL,
    decision  BLOB    NOT NULL,
    entry     INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, decision)
) STRICT, WITHOUT ROWID;

-- The nouns of each tenant as JSON. It remembers the snapshot and is read when the gateway starts, never for a decision.
CREATE TABLE directory (
    tenant_no INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    name      TEXT,
    value     TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, kind, id)
) STRICT;

CREATE UNIQUE INDEX directory_name
    ON directory (tenant_no, kind, name)
    WHERE name IS NOT NULL;

-- What was recorded is not rewritten, also not by hand. These fire on UPDATE and DELETE only: a commit never pays for
-- them.
CREATE TRIGGER tenants_are_not_deleted
    BEFORE DELETE ON tenants
    BEGIN SELECT RAISE(ABORT, 'tenants are not deleted'); END;
CREATE TRIGGER audit_events_are_not_rewritten
    BEFORE UPDATE ON audit_events
    BEGIN SELECT RAISE(ABORT, 'ledger entries are not rewritten'); END;
CREATE TRIGGER audit_events_are_not_deleted
    BEFORE DELETE ON audit_events
    BEGIN SELECT RAISE(ABORT, 'ledger entries are not deleted'); END;
CREATE TRIGGER decisions_are_not_rewritten
    BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are not rewritten'); END;
CREATE TRIGGER decisions_are_not_deleted
    BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are not deleted'); END;
CREATE TRIGGER receipts_are_not_rewritten
    BEFORE UPDATE ON receipts
    BEGIN SELECT RAISE(ABORT, 'receipts are not rewritten'); END;
CREATE TRIGGER receipts_are_not_deleted
    BEFORE DELETE ON receipts
    BEGIN SELECT RAISE(ABORT, 'receipts are not deleted'); END;
