-- Return the progress of files that are read in splits: rows published or suspended, the bad ones among them, and the
-- bytes of the finished splits.
-- Indexes: splits by interchange_id; receipts' primary key, a row per chunk.
CREATE OR REPLACE FUNCTION messagebox.split_progress(p_interchange_ids uuid[])
RETURNS TABLE (interchange_id uuid, row_count bigint, bad_rows bigint, bytes_done bigint, splits_done bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT s.interchange_id, coalesce(sum(r.last), 0)::bigint, coalesce(sum(r.bad), 0)::bigint,
           coalesce(sum(s.length) FILTER (WHERE r.done), 0)::bigint, count(*) FILTER (WHERE r.done)
      FROM splits s
      LEFT JOIN LATERAL (SELECT max((one.outcome->>'last')::bigint) AS last,
                                sum(coalesce((one.outcome->>'bad')::bigint, 0)) AS bad,
                                bool_or((one.outcome->>'done')::boolean) AS done
                           FROM receipts one WHERE one.unit = s.unit) r ON true
     WHERE s.interchange_id = ANY (p_interchange_ids)
     GROUP BY s.interchange_id;
$$;
