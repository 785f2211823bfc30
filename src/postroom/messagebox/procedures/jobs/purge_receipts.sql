-- Delete receipts that are older than any unit of work that can still be repeated.
-- Indexes: receipts (published_at), primary keys of file_claims, splits, stream_units and inbox.
CREATE OR REPLACE FUNCTION messagebox.purge_receipts(p_keep interval DEFAULT '7 days', p_now timestamptz DEFAULT now())
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    purged bigint;
BEGIN
    DELETE FROM receipts r
     WHERE r.published_at < p_now - p_keep
       -- Whoever runs the jobs may be any host: what is younger than a day is never forgotten for one.
       AND (r.published_at < now() - interval '1 day' OR pg_has_role(session_user, current_user, 'member'))
       AND NOT EXISTS (SELECT 1 FROM file_claims c WHERE c.interchange_id = r.unit)
       AND NOT EXISTS (SELECT 1 FROM splits s WHERE s.unit = r.unit)
       AND NOT EXISTS (SELECT 1 FROM stream_units u WHERE u.unit = r.unit)
       AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.interchange_id = r.unit);
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END $$;
