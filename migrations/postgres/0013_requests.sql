-- On PostgreSQL requests are found as before: its index is written by other processes than the one that commits.
SELECT 1;
