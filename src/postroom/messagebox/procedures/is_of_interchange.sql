-- Return true if a message belongs to this interchange. It lets operators, who cannot read contexts, select instances
-- by interchange.
-- Index: spool's primary key.
CREATE OR REPLACE FUNCTION messagebox.is_of_interchange(p_message_id uuid, p_interchange_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM spool s
         WHERE s.message_id = p_message_id
           AND p_interchange_id::text IN (s.context #>> '{written,BTS#InterchangeID}',
                                          s.context #>> '{promoted,BTS#InterchangeID}'));
$$;
