-- First half of a fold, committed separately: writers append to the other log from now on. Returns the log to fold, or
-- null if both are empty. A writer that has read the old flag may still append to it. Its rows wait for the next fold.
CREATE OR REPLACE FUNCTION messagebox.flip_ref_count_log(p_kind text) RETURNS smallint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    was_active smallint := (SELECT active FROM active_ref_count_log WHERE kind = p_kind);
    has_rows boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', format('%s_ref_count_log_%s', p_kind, was_active)) INTO has_rows;
    IF has_rows THEN
        UPDATE active_ref_count_log SET active = 3 - was_active WHERE kind = p_kind;
        RETURN was_active;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', format('%s_ref_count_log_%s', p_kind, 3 - was_active))
       INTO has_rows;
    RETURN CASE WHEN has_rows THEN 3 - was_active END;
END $$;
