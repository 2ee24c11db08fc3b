-- Bodies are packed: the same text in half the bytes, in `packed`, and `body` is empty. What was written before stands in `body` still.
-- In `receipts.bytes` the first byte says which it is: a text begins with a brace. `crates/store-sqlite/src/packed.rs` says how they are
-- read.
ALTER TABLE audit_events ADD COLUMN packed BLOB;

-- As before, but for the column: what is erased is gone from both.
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
      OR NEW.packed IS NOT NULL
      OR length(NEW.erased_body) IS NOT 32
      OR NOT EXISTS (
          SELECT 1
          FROM audit_events AS telling
          WHERE telling.entry = (OLD.entry >> 40 << 40) + NEW.erased_by
            AND telling.kind = 'bodies_erased'
      )
    BEGIN SELECT RAISE(ABORT, 'ledger entries are not rewritten'); END;
