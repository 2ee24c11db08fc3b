-- The body of an entry can be erased: its digest stays in its place, so that the header still hashes to what it did, with the `seq` of
-- the entry that tells of the erasure. Everything else that tells what the body told goes in the same commit.
ALTER TABLE audit_events ADD COLUMN erased_body BLOB;
ALTER TABLE audit_events ADD COLUMN erased_by INTEGER;

-- This and nothing else may be rewritten: a body that is still there, by an entry of the same ledger that tells of it.
DROP TRIGGER audit_events_are_not_rewritten;
CREATE TRIGGER audit_events_are_not_rewritten
    BEFORE UPDATE ON audit_events
    WHEN NEW.entry IS NOT OLD.entry
      OR NEW.kind IS NOT OLD.kind
      OR NEW.at IS NOT OLD.at
      OR NEW.prev IS NOT OLD.prev
      OR NEW.hash IS NOT OLD.hash
      OR NEW.nodes IS NOT OLD.nodes
      OR OLD.erased_by IS NOT NULL
      OR NEW.body IS NOT ''
      OR length(NEW.erased_body) IS NOT 32
      OR NOT EXISTS (
          SELECT 1
          FROM audit_events AS telling
          WHERE telling.entry = (OLD.entry >> 40 << 40) + NEW.erased_by
            AND telling.kind = 'bodies_erased'
      )
    BEGIN SELECT RAISE(ABORT, 'ledger entries are not rewritten'); END;

DROP TRIGGER decisions_are_not_deleted;
CREATE TRIGGER decisions_are_not_deleted
    BEFORE DELETE ON decisions
    WHEN NOT EXISTS (
        SELECT 1
        FROM audit_events
        WHERE audit_events.entry = OLD.entry
          AND audit_events.erased_by IS NOT NULL
    )
    BEGIN SELECT RAISE(ABORT, 'decisions are not deleted'); END;

DROP TRIGGER receipts_are_not_deleted;
CREATE TRIGGER receipts_are_not_deleted
    BEFORE DELETE ON receipts
    WHEN NOT EXISTS (
        SELECT 1
        FROM audit_events
        WHERE audit_events.entry = OLD.entry
          AND audit_events.erased_by IS NOT NULL
    )
    BEGIN SELECT RAISE(ABORT, 'receipts are not deleted'); END;
