-- PostgreSQL remembers here which nouns the last changes of a directory have put or taken away, for other gateways. A file has none: whoever writes
-- to it has put in force what it has written.
SELECT 1;
