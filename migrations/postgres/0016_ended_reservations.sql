-- Reservations that should have ended are looked for over all tenants at once, and those first that ended first. It is no key, so it need not
-- begin with the tenant. What is held by one tenant is looked for by the index beside it.
CREATE INDEX reservations_ending
    ON reservations (expires_at)
    WHERE status = 'active';
