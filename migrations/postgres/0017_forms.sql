-- Nouns and approvals are kept as JSON. Since the step before this one they have new members, and the directory has a new kind. A version that
-- does not know them would lose them with the next change, so it has to refuse the database, which it does by the number of this step.
SELECT 1;
