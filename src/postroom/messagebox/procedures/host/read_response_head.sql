-- Return the status and the headers of the stored response to a request with an idempotency key, or null.
-- Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_response_head___HOST__(p_unit uuid) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT head FROM stored_responses WHERE unit = p_unit AND number = 0 AND host_id = __HOST_ID__;
$$;
