-- Return the ids between two ids that are interchanges of stored messages. It lets operators, who cannot read contexts,
-- shorten the id of an interchange. It reads the whole spool.
CREATE OR REPLACE FUNCTION messagebox.find_interchanges(p_first uuid, p_last uuid) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT DISTINCT i.id::uuid
      FROM spool s,
           LATERAL (VALUES (s.context #>> '{written,BTS#InterchangeID}'),
                           (s.context #>> '{promoted,BTS#InterchangeID}')) AS i (id)
     WHERE i.id BETWEEN p_first::text AND p_last::text
       AND i.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
$$;
