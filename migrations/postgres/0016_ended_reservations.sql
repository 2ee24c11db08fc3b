-- Reservations that should have ended are looked for over all tenants at once, and those first that ended first. It is no key, so it need not
-- begin with the tenant. Nothing is added to the time: a statement that looks for what one tenant holds, by the index beside it, has to look the
-- way that it always did, and could not be planned to go through what all the others have left.
CREATE INDEX IF NOT EXISTS reservations_ending
    ON reservations ((expires_at + 0))
    WHERE status = 'active';
