-- Store fragments of the response to a request with an idempotency key, for a caller that repeats the request. The
-- receipt of the request exists; its purge deletes the response, too.
-- Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.store_response___HOST__(
    p_unit uuid, p_first_number integer, p_content_type text, p_bodies bytea[]
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO stored_responses (unit, number, host_id, content_type, body)
    SELECT p_unit, p_first_number + f.position::integer - 1, __HOST_ID__, p_content_type, f.body
      FROM unnest(p_bodies) WITH ORDINALITY AS f (body, position)
    ON CONFLICT DO NOTHING;
$$;
