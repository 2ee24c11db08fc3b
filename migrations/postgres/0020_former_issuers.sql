-- The directory has a new kind: what stays of issuers that were deleted, so that no other tenant answers their tokens.
-- A version that does not know it could not read the directory, so it has to refuse the database, which it does by the
-- number of this step.
SELECT 1;
