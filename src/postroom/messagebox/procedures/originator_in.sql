-- Return the originator in a context, or null if there is none or it is empty.
CREATE OR REPLACE FUNCTION messagebox.originator_in(p_context jsonb, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT nullif(coalesce(p_context -> 'promoted' ->> p_key, p_context -> 'written' ->> p_key), '');
$$;
