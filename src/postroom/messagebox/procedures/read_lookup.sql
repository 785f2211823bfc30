-- Return the lookup with a name, and the keys that have changed since the version that the caller has seen: at most
-- p_limit, or null if there are more, or if the caller has seen another content (p_id), or a version that a restored
-- backup does not have. No row if there is no such lookup. Every host may read every lookup.
-- Reads services whole. Indexes: lookup_contents (service_id), lookup_entries_version.
CREATE OR REPLACE FUNCTION messagebox.read_lookup(p_name text, p_id integer, p_version bigint, p_limit integer)
RETURNS TABLE (id integer, key_property text, key_type smallint, version bigint, changed text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT l.id, l.key_property, l.key_type, l.version,
           CASE WHEN l.id = p_id AND l.version >= p_version AND coalesce(cardinality(c.keys), 0) <= p_limit
                THEN coalesce(c.keys, '{}') END
      FROM services s
      JOIN lookup_contents l ON l.service_id = s.id
     CROSS JOIN LATERAL (
           SELECT array_agg(e.key) AS keys
             FROM (SELECT n.key FROM lookup_entries n
                    WHERE n.lookup_id = l.id AND n.version > p_version AND l.id = p_id LIMIT p_limit + 1) e) c
     WHERE s.kind = 'lookup' AND s.removed_at IS NULL AND s.name = p_name;
END $$;
