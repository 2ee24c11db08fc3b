-- Approvals and answers stand apart from the keys that find them. They can be long: an approval has the parameters that
-- people were shown and what they said, an answer up to 24 balances. In a table without rowids a row is its key, and
-- SQLite reads all of a row to compare it with the one that it looks for, also for another tenant. With rowids the key
-- is an index.
--
-- What is there is copied, in the order of its key, in the one transaction that a step is: a step that is broken off
-- has changed nothing. Until the end it takes the room of these rows twice in the log, once for the copy and once for
-- the pages of the old table, which are overwritten with zeros; and once more in the file, for what comes later.
CREATE TABLE approvals_apart (
    tenant_no  INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    agent      BLOB    NOT NULL,
    status     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (tenant_no, id)
) STRICT;

INSERT INTO approvals_apart (tenant_no, id, agent, status, expires_at, value)
SELECT tenant_no, id, agent, status, expires_at, value
FROM approvals
ORDER BY tenant_no, id;

DROP TABLE approvals;

ALTER TABLE approvals_apart RENAME TO approvals;

CREATE INDEX approvals_status
    ON approvals (tenant_no, status, id);

CREATE INDEX approvals_open
    ON approvals (expires_at)
    WHERE status IN ('pending', 'approved');

-- The answer stands last, so that reading the rest of a row does not touch the pages that a long one overflows to.
CREATE TABLE replies_apart (
    tenant_no INTEGER NOT NULL,
    caller    BLOB    NOT NULL,
    key       TEXT    NOT NULL,
    request   BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    bytes     BLOB    NOT NULL,
    PRIMARY KEY (tenant_no, caller, key)
) STRICT;

INSERT INTO replies_apart (tenant_no, caller, key, request, at, bytes)
SELECT tenant_no, caller, key, request, at, bytes
FROM replies
ORDER BY tenant_no, caller, key;

DROP TABLE replies;

ALTER TABLE replies_apart RENAME TO replies;

CREATE INDEX replies_at
    ON replies (at);
