-- Rebuild wrong reference counts from the queues. Returns the number of corrected counts and some examples, by kind and by
-- problem: missing, too low, too high, left over (no such message or part), not scheduled for cleanup. The cleanup deletes
-- messages and parts without references later.
-- While queues refer to messages that are not in the spool, counts of parts are not lowered, because the parts of these
-- messages are unknown.
-- Locks: SHARE ROW EXCLUSIVE on all logs, in the order in which publishers write them, so that it waits for every
-- transaction that has counted something. Every other transaction counts after this one. The caller has locked the jobs.
-- The queues, the spool and the counts are read whole, and hashed.
CREATE OR REPLACE FUNCTION messagebox.repair_ref_counts(p_examples integer DEFAULT 10)
RETURNS TABLE (kind text, problem text, corrected bigint, examples text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    counted_kind text;
    referenced text;
    keep_parts boolean;
BEGIN
    LOCK TABLE message_ref_count_log_1, message_ref_count_log_2, part_ref_count_log_1, part_ref_count_log_2
        IN SHARE ROW EXCLUSIVE MODE;
    -- Only after the locks: the statements from here on see everything that was counted.
    keep_parts := EXISTS (
        SELECT 1 FROM instances i WHERE NOT EXISTS (SELECT 1 FROM spool s WHERE s.message_id = i.message_id));
    FOREACH counted_kind IN ARRAY ARRAY['message', 'part'] LOOP
        IF counted_kind = 'message' THEN
            referenced := 'SELECT id, count(i.message_id) AS n
                             FROM (SELECT message_id AS id FROM spool UNION SELECT message_id FROM instances) known
                             LEFT JOIN instances i ON i.message_id = id
                            GROUP BY id';
        ELSE
            referenced := 'SELECT id, coalesce(sum(n), 0)::bigint AS n
                             FROM (SELECT part_id AS id, 0 AS n FROM parts
                                   UNION ALL
                                   SELECT unnest(s.part_ids), i.n
                                     FROM (SELECT message_id, count(*) AS n FROM instances GROUP BY message_id) i
                                     JOIN spool s USING (message_id)) r
                            GROUP BY id';
        END IF;
        DROP TABLE IF EXISTS pg_temp.wrong_ref_counts;
        EXECUTE format($sql$
            CREATE TEMPORARY TABLE wrong_ref_counts ON COMMIT DROP AS
            WITH referenced AS (%3$s),
                 pending AS (SELECT %1$I_id AS id FROM %1$I_zero_sum
                             UNION SELECT %1$I_id FROM %1$I_ref_count_log_1
                             UNION SELECT %1$I_id FROM %1$I_ref_count_log_2)
            SELECT id, c.total AS counted, coalesce(r.n, 0) AS referenced,
                   CASE WHEN r.id IS NULL THEN 'left over'
                        WHEN c.total IS NULL THEN 'missing'
                        WHEN c.total < r.n THEN 'too low'
                        WHEN c.total > r.n THEN 'too high'
                        ELSE 'not scheduled for cleanup' END AS problem
              FROM referenced r
              FULL JOIN (SELECT %1$I_id AS id, total FROM %1$I_ref_counts) c USING (id)
              LEFT JOIN pending USING (id)
             WHERE (c.total IS DISTINCT FROM coalesce(r.n, 0) OR coalesce(r.n, 0) = 0 AND pending.id IS NULL)
               AND NOT (%2$L AND coalesce(r.n, 0) <= coalesce(c.total, 0)) $sql$,
            counted_kind, keep_parts AND counted_kind = 'part', referenced);
        EXECUTE format($sql$
            DELETE FROM %1$I_ref_count_log_1 USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_ref_count_log_2 USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_ref_count_log_totals USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_zero_sum USING wrong_ref_counts w WHERE %1$I_id = w.id;
            INSERT INTO %1$I_ref_count_log_totals SELECT id, referenced FROM wrong_ref_counts WHERE referenced > 0;
            INSERT INTO %1$I_zero_sum
            SELECT id FROM wrong_ref_counts WHERE referenced = 0 AND wrong_ref_counts.problem <> 'left over' $sql$,
            counted_kind);
        RETURN QUERY EXECUTE format($sql$
            SELECT %1$L::text, w.problem, count(*),
                   (array_agg(format('%%s %%s, %%s counted, %%s in the queues', %1$L::text, w.id, coalesce(w.counted, 0),
                                     w.referenced) ORDER BY w.id))[1:%2$s]
              FROM wrong_ref_counts w
             GROUP BY w.problem
             ORDER BY w.problem $sql$, counted_kind, p_examples);
    END LOOP;
    DROP TABLE pg_temp.wrong_ref_counts;
END $$;
