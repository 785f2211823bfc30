-- What a context says of who the message is from; null if it says nothing, or an empty text.
CREATE OR REPLACE FUNCTION messagebox.originator_in(p_context jsonb, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT nullif(coalesce(p_context -> 'promoted' ->> p_key, p_context -> 'written' ->> p_key), '');
$$;
