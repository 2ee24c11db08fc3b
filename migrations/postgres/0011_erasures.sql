-- The body of an entry can be erased: its digest stays in its place, so that the header still hashes to what it did, with the `seq` of
-- the entry that tells of the erasure. Everything else that tells what the body told goes in the same commit.
ALTER TABLE audit_events ADD COLUMN erased_body bytea;
ALTER TABLE audit_events ADD COLUMN erased_by bigint;

-- This and nothing else may be rewritten: a body that is still there, by an entry of the same ledger that tells of it. The rows are
-- compared whole but for these columns, so that a column which comes later is not forgotten here.
CREATE FUNCTION refuse_unless_erasing() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    DECLARE
        rest audit_events;
    BEGIN
        rest := NEW;
        rest.body := OLD.body;
        rest.erased_body := OLD.erased_body;
        rest.erased_by := OLD.erased_by;
        IF rest IS NOT DISTINCT FROM OLD
            AND OLD.erased_by IS NULL
            AND NEW.body = ''
            AND octet_length(NEW.erased_body) = 32
            AND EXISTS (
                SELECT
                FROM audit_events AS telling
                WHERE telling.tenant_id = OLD.tenant_id
                  AND telling.seq = NEW.erased_by
                  AND telling.kind = 'bodies_erased'
            )
        THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'rows of `%` are not rewritten or deleted', TG_TABLE_NAME;
    END $$;

CREATE FUNCTION refuse_unless_erased() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        IF EXISTS (
            SELECT
            FROM audit_events
            WHERE audit_events.tenant_id = OLD.tenant_id
              AND audit_events.seq = OLD.seq
              AND audit_events.erased_by IS NOT NULL
        )
        THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'rows of `%` are not rewritten or deleted', TG_TABLE_NAME;
    END $$;

DROP TRIGGER audit_events_are_not_rewritten ON audit_events;
CREATE TRIGGER audit_events_are_not_rewritten
    BEFORE UPDATE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_erasing();
CREATE TRIGGER audit_events_are_not_deleted
    BEFORE DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();

DROP TRIGGER decisions_are_not_rewritten ON decisions;
CREATE TRIGGER decisions_are_not_rewritten
    BEFORE UPDATE ON decisions
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER decisions_are_not_deleted
    BEFORE DELETE ON decisions
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_erased();

DROP TRIGGER receipts_are_not_rewritten ON receipts;
CREATE TRIGGER receipts_are_not_rewritten
    BEFORE UPDATE ON receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite();
CREATE TRIGGER receipts_are_not_deleted
    BEFORE DELETE ON receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_erased();
