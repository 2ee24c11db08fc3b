-- What entries name by its digest: the nouns that a decision was made from, sets of policies. It is there once a tenant,
-- however many entries name it, and a row is never another one under its digest. It may be deleted: what is in here can be
-- about people.
CREATE TABLE contents (
    tenant_id uuid  NOT NULL,
    digest    bytea NOT NULL,
    bytes     bytea NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);

CREATE TRIGGER contents_are_not_rewritten
    BEFORE UPDATE ON contents
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
