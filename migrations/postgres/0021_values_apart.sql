-- PostgreSQL has kept long values apart from their rows, and keys in indexes, from the beginning.
SELECT 1;
