-- Advance the clock that decides which receipts are old, and return its time. p_elapsed is the time that has passed
-- since the stored time was read, by a clock that cannot be set. So if the server's clock is set forward, no receipt
-- becomes older by the step. If it is set back, this clock is set back with it: a new receipt must not be old at once.
-- A host cannot give another time than that of the server, because the owner deletes receipts by this clock, too.
-- Locks: the row of receipt_clock, if its time changes.
CREATE OR REPLACE FUNCTION messagebox.advance_receipt_clock(
    p_elapsed interval, p_now timestamptz DEFAULT clock_timestamp())
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    stored timestamptz;
    advanced timestamptz;
BEGIN
    IF NOT pg_has_role(session_user, current_user, 'member') THEN
        p_now := clock_timestamp();
    END IF;
    SELECT c.trusted_at INTO STRICT stored FROM receipt_clock c;
    advanced := least(p_now, stored + greatest(p_elapsed, '0'));
    IF advanced <> stored THEN
        UPDATE receipt_clock SET trusted_at = advanced;
    END IF;
    RETURN advanced;
END $$;
