-- Rebuild wrong reference counts from the queues. Returns the number of corrected counts and some examples, by kind and
-- by problem: missing, too low, too high, left over (no such message or part), not scheduled for cleanup. The cleanup
-- deletes messages and parts without references later.
-- References whose counting transaction is in the future are counted by this transaction instead: the MessageBox was
-- restored on a server with fewer transactions, where a host could wait for that number and lower the count.
-- While queues refer to messages that are not in the spool, counts of parts are not lowered, because the parts of these
-- messages are unknown.
-- Locks: SHARE ROW EXCLUSIVE on the spool and all logs, in the order in which publishers write them, so that it waits
-- for every transaction that has counted or released something. Every other transaction counts after this one. The
-- caller has locked the jobs.
-- The queues, the spool and the counts are read whole, and hashed.
CREATE OR REPLACE FUNCTION messagebox.repair_ref_counts(p_examples integer DEFAULT 10)
RETURNS TABLE (kind text, problem text, corrected bigint, examples text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    counted_kind text;
    referenced text;
    queue text;
    stored text;
    keep_parts boolean;
BEGIN
    LOCK TABLE spool, message_ref_count_log_1, message_ref_count_log_2, part_ref_count_log_1, part_ref_count_log_2
        IN SHARE ROW EXCLUSIVE MODE;
    -- Only after the locks: the statements from here on see everything that was counted.
    FOREACH queue IN ARRAY ARRAY['work_queue', 'scheduled_queue', 'suspended_queue', 'orchestration_messages'] LOOP
        EXECUTE format('UPDATE %I SET counted_in = pg_current_xact_id()
                         WHERE counted_in >= pg_snapshot_xmax(pg_current_snapshot())', queue);
    END LOOP;
    FOREACH stored IN ARRAY ARRAY['spool', 'parts'] LOOP
        EXECUTE format('UPDATE %I SET counted_in = pg_current_xact_id()
                         WHERE only_reference AND counted_in >= pg_snapshot_xmax(pg_current_snapshot())', stored);
    END LOOP;
    keep_parts := EXISTS (
        SELECT 1 FROM instances i WHERE NOT EXISTS (SELECT 1 FROM spool s WHERE s.message_id = i.message_id));
    FOREACH counted_kind IN ARRAY ARRAY['message', 'part'] LOOP
        -- The references by id and by the transaction that counted them. The rows with transaction 0 list the known
        -- ids.
        stored := CASE counted_kind WHEN 'message' THEN 'spool' ELSE 'parts' END;
        IF counted_kind = 'message' THEN
            referenced := 'SELECT id, counted_in, sum(n)::bigint AS n
                             FROM (SELECT message_id AS id, ''0''::xid8 AS counted_in, 0 AS n FROM spool
                                   UNION ALL SELECT message_id, counted_in, 1 FROM instances) r
                            GROUP BY id, counted_in';
        ELSE
            referenced := 'SELECT id, counted_in, sum(n)::bigint AS n
                             FROM (SELECT part_id AS id, ''0''::xid8 AS counted_in, 0 AS n FROM parts
                                   UNION ALL
                                   SELECT unnest(s.part_ids), i.counted_in, i.n
                                     FROM (SELECT message_id, counted_in, count(*) AS n FROM instances GROUP BY 1, 2) i
                                     JOIN spool s USING (message_id)) r
                            GROUP BY id, counted_in';
        END IF;
        DROP TABLE IF EXISTS pg_temp.wrong_ref_counts;
        EXECUTE format($sql$
            CREATE TEMPORARY TABLE wrong_ref_counts ON COMMIT DROP AS
            WITH referenced AS (%3$s),
                 logged AS (SELECT %1$I_id AS id, counted_in, delta FROM %1$I_ref_count_log_1
                            UNION ALL SELECT %1$I_id, counted_in, delta FROM %1$I_ref_count_log_2),
                 counted AS (SELECT id, counted_in, sum(total)::bigint AS total
                               FROM (SELECT %1$I_id AS id, counted_in, total FROM %1$I_ref_count_log_totals
                                     UNION ALL SELECT id, counted_in, delta FROM logged
                                     UNION ALL SELECT %1$I_id, counted_in, 1 FROM %4$I WHERE only_reference
                                     UNION ALL SELECT %1$I_id, '0', 0 FROM %1$I_zero_sum) c
                              GROUP BY id, counted_in),
                 pending AS (SELECT %1$I_id AS id FROM %1$I_zero_sum UNION SELECT id FROM logged),
                 compared AS (SELECT id, coalesce(r.n, 0) AS n, coalesce(c.total, 0) AS total,
                                     r.id IS NOT NULL AS is_known, c.id IS NOT NULL AS is_counted
                                FROM referenced r FULL JOIN counted c USING (id, counted_in))
            SELECT id, sum(total)::bigint AS counted, sum(n)::bigint AS referenced,
                   CASE WHEN NOT bool_or(is_known) THEN 'left over'
                        WHEN NOT bool_or(is_counted) THEN 'missing'
                        WHEN bool_or(total < n) THEN 'too low'
                        WHEN bool_or(total > n) THEN 'too high'
                        ELSE 'not scheduled for cleanup' END AS problem
              FROM compared
              LEFT JOIN pending USING (id)
             GROUP BY id
            HAVING (bool_or(total <> n) OR NOT bool_or(is_known) OR NOT bool_or(is_counted)
                    OR sum(n) = 0 AND count(pending.id) = 0)
               AND NOT (%2$L AND sum(n) <= sum(total)) $sql$,
            counted_kind, keep_parts AND counted_kind = 'part', referenced, stored);
        EXECUTE format($sql$
            UPDATE %3$I SET only_reference = false FROM wrong_ref_counts w WHERE %1$I_id = w.id AND only_reference;
            DELETE FROM %1$I_ref_count_log_1 USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_ref_count_log_2 USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_ref_count_log_totals USING wrong_ref_counts w WHERE %1$I_id = w.id;
            DELETE FROM %1$I_zero_sum USING wrong_ref_counts w WHERE %1$I_id = w.id;
            INSERT INTO %1$I_ref_count_log_totals (%1$I_id, counted_in, total)
            SELECT r.id, r.counted_in, r.n FROM (%2$s) r JOIN wrong_ref_counts w USING (id) WHERE r.n > 0;
            INSERT INTO %1$I_zero_sum
            SELECT id FROM wrong_ref_counts w WHERE w.referenced = 0 AND w.problem <> 'left over' $sql$,
            counted_kind, referenced, stored);
        RETURN QUERY EXECUTE format($sql$
            SELECT %1$L::text, w.problem, count(*),
                   (array_agg(format('%%s %%s, %%s counted, %%s in the queues', %1$L::text, w.id, w.counted,
                                     w.referenced) ORDER BY w.id))[1:%2$s]
              FROM wrong_ref_counts w
             GROUP BY w.problem
             ORDER BY w.problem $sql$, counted_kind, p_examples);
    END LOOP;
    DROP TABLE pg_temp.wrong_ref_counts;
END $$;
