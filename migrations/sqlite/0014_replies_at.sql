-- When an answer was given, so that it is forgotten when nobody repeats its request any more. What was there before counts from now. The
-- index is written in order, and read by the job that forgets.
ALTER TABLE replies ADD COLUMN at INTEGER NOT NULL DEFAULT 0;

UPDATE replies SET at = unixepoch() * 1000;

CREATE INDEX replies_at
    ON replies (at);
