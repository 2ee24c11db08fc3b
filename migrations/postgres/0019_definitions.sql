-- Approvals keep the definition that people were shown, and entries say whom an ask that was only observed would have excluded, and under which run
-- usage and reservations have put theirs. A version that does not know these would lose the first with the next vote, and put runs under others
-- without a word, so it has to refuse the database, which it does by the number of this step.
SELECT 1;
