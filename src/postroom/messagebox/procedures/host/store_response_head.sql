-- Store the status and the headers of the stored response to a request with an idempotency key. Most responses have
-- none. Called after store_response, in the same transaction.
-- Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.store_response_head___HOST__(p_unit uuid, p_head jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE stored_responses SET head = p_head WHERE unit = p_unit AND number = 0 AND host_id = __HOST_ID__;
$$;
