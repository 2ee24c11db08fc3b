-- On SQLite reservations that should have ended are found by the index that is there: it has those of each tenant in the order in which they
-- end, and of each tenant no more is read than may be among the first. An index over all tenants would cost every reservation two more writes.
SELECT 1;
