-- What entries name by its digest: the nouns that a decision was made from, sets of policies. It is there once a tenant,
-- however many entries name it, and a row is never another one under its digest. It may be deleted: what is in here can be
-- about people.
CREATE TABLE contents (
    tenant_no INTEGER NOT NULL,
    digest    BLOB    NOT NULL,
    bytes     BLOB    NOT NULL,
    PRIMARY KEY (tenant_no, digest)
) STRICT;

CREATE TRIGGER contents_are_not_rewritten
    BEFORE UPDATE ON contents
    BEGIN SELECT RAISE(ABORT, 'contents are not rewritten'); END;
