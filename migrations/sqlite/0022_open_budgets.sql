-- Open budgets in the order of their ids, in which they are listed. Closed ones stay for good, and whoever lists what
-- is open should not go through them. A budget comes in when it is made and goes when it is closed; what moves in it
-- is not written here.
CREATE INDEX budgets_open_in_order
    ON budgets (tenant_no, id)
    WHERE is_open = 1;
