-- Which nouns the last changes of a directory have put or taken away, so that a gateway that knows an earlier revision reads those and not all that
-- there are. `since` is the revision that a change was made from: where the rows of a tenant do not lead from the revision that is known to the
-- one that it has now, they were forgotten, or never written, and the directory is read whole.
CREATE TABLE directory_changes (
    tenant_id uuid   NOT NULL,
    revision  bigint NOT NULL,
    kind      text   COLLATE "C" NOT NULL,
    id        text   COLLATE "C" NOT NULL,
    since     bigint NOT NULL,
    PRIMARY KEY (tenant_id, revision, kind, id)
);
