-- Return the entry of a key. No row if there is none, or if it was deleted. Every host may read every lookup.
-- Index: the primary key of lookup_entries.
CREATE OR REPLACE FUNCTION messagebox.read_lookup_entry(p_lookup_id integer, p_key text)
RETURNS TABLE (message_id uuid, context text, originator_sid text, originator_pid text, part_name text,
               content_type text, charset text, body bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT e.message_id, e.context::text, e.originator_sid, e.originator_pid, e.part_name, e.content_type, e.charset,
           e.body
      FROM lookup_entries e
     WHERE e.lookup_id = p_lookup_id AND e.key = p_key AND e.context IS NOT NULL;
END $$;
