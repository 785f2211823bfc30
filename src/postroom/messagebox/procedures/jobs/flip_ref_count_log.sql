-- First half of a fold, committed on its own: from now on writers append to the other log. Returns the log that is
-- inactive now. A writer that read the old flag may still append to it; its rows wait for the next fold.
CREATE OR REPLACE FUNCTION messagebox.flip_ref_count_log(p_kind text) RETURNS smallint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE active_ref_count_log SET active = 3 - active WHERE kind = p_kind RETURNING 3 - active;
$$;
