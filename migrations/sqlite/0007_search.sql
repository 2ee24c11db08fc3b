-- What decisions are searched by is indexed in a file of its own, beside this one: migrations/sqlite-search. Here it would have to
-- wait for commits, and commits for it.
SELECT 1;
