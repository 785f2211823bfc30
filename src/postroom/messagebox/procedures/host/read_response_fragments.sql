-- Return fragments of a stored response of this host, in order.
-- Index: stored_responses' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_response_fragments___HOST__(
    p_unit uuid, p_first_number integer, p_count integer
) RETURNS SETOF bytea
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT f.body FROM stored_responses f
     WHERE f.unit = p_unit AND f.number >= p_first_number AND f.number < p_first_number + p_count
       AND f.host_id = __HOST_ID__
     ORDER BY f.number;
$$;
