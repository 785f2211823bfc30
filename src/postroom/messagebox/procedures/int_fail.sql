-- Return a row with the time and the reason of its suspension, for int_suspend.
CREATE OR REPLACE FUNCTION messagebox.int_fail(
    p_row messagebox.queue_row, p_now timestamptz, p_cause messagebox.suspension_cause, p_resumable boolean,
    p_error_code text, p_error_description text
) RETURNS messagebox.queue_row
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    p_row.suspended_at := p_now;
    p_row.cause := p_cause;
    p_row.resumable := p_resumable;
    p_row.error_code := p_error_code;
    p_row.error_description := p_error_description;
    RETURN p_row;
END $$;
