-- Return the stored response to a request of this host. Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_response___HOST__(p_unit uuid)
RETURNS TABLE (content_type text, body bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT r.content_type, r.body FROM stored_responses r WHERE r.unit = p_unit AND r.host_id = __HOST_ID__;
$$;
