-- Store the response to a request with an idempotency key, for a caller that repeats the request. The receipt of the
-- request exists; its purge deletes the response, too.
-- Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.store_response___HOST__(p_unit uuid, p_content_type text, p_body bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO stored_responses (unit, host_id, content_type, body)
    VALUES (p_unit, __HOST_ID__, p_content_type, p_body) ON CONFLICT DO NOTHING;
$$;
