-- On SQLite the index that expired approvals are found by has been in the order in which they expire from the beginning.
SELECT 1;
