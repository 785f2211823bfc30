-- End a session that is still stalled with the same activity (find_stalled_sessions). Returns true if it was ended.
-- Locks: none. The owner has to be a member of pg_signal_backend and pg_read_all_stats.
CREATE OR REPLACE FUNCTION messagebox.terminate_stalled_session(p_session integer, p_activity text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT coalesce(bool_or(pg_terminate_backend(s.session)), false) FROM find_stalled_sessions() s
     WHERE s.session = p_session AND s.activity = p_activity
$$;
