-- Advance the clock that decides which receipts are old, and return its time. p_elapsed is the time that has passed since the
-- stored time was read, by a clock that cannot be set. So the clock never runs ahead of the server's clock, and if that is
-- set forward, no receipt becomes older by the step.
-- Locks: the row of receipt_clock, if its time changes.
CREATE OR REPLACE FUNCTION messagebox.advance_receipt_clock(p_elapsed interval, p_now timestamptz DEFAULT clock_timestamp())
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    stored timestamptz;
    advanced timestamptz;
BEGIN
    SELECT c.trusted_at INTO STRICT stored FROM receipt_clock c;
    advanced := greatest(stored, least(p_now, stored + p_elapsed));
    IF advanced > stored THEN
        UPDATE receipt_clock SET trusted_at = advanced;
    END IF;
    RETURN advanced;
END $$;
