-- The tree over each ledger. With an entry stand the hashes of the subtrees that it completes, 64 bytes on average, so that
-- any root and any proof is some dozens of reads by primary key; beside the head stands the edge of the tree, which is all that
-- adding an entry needs. Ledgers that were written before are completed when the database is opened.
ALTER TABLE tenants ADD COLUMN edge BLOB NOT NULL DEFAULT x'';
ALTER TABLE audit_events ADD COLUMN nodes BLOB NOT NULL DEFAULT x'';
