-- Return the progress of units: the last chunk, its last document, the number of bad documents, whether the unit is
-- finished, and outcome and digest in the first chunk's receipt.
-- Index: receipts' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_receipts(p_units uuid[])
RETURNS TABLE (
    unit uuid, last_chunk integer, last_document bigint, bad bigint, done boolean, outcome jsonb, digest bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT r.unit, max(r.chunk), max((r.outcome->>'last')::bigint),
           coalesce(sum((r.outcome->>'bad')::bigint), 0)::bigint, bool_or((r.outcome->>'done')::boolean),
           (array_agg(r.outcome ORDER BY r.chunk))[1], (array_agg(r.digest ORDER BY r.chunk))[1]
      FROM receipts r
     WHERE r.unit = ANY (p_units)
     GROUP BY r.unit;
$$;
