-- When an answer was given, so that it is forgotten when nobody repeats its request any more. What was there before counts from now, and
-- so does what a gateway of an earlier version writes. The index is written in order, and read by the job that forgets.
ALTER TABLE replies
    ADD COLUMN at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint;

CREATE INDEX replies_at
    ON replies (at);
