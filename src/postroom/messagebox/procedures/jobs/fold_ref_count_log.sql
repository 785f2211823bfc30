-- Second half of a fold, in a transaction of its own with a lock timeout: waits for the writers of one log, deletes its
-- rows, adds their deltas to the totals and records the ids whose sum is zero. Returns the number of log rows. A total
-- that comes to zero is deleted, not updated: the cleanup would delete it next. An id whose deltas within one log
-- cancel out gets no total here; the cleanup checks whether it has one from an earlier fold.
-- Index: primary key of the totals, once for each count. Totals do not change meanwhile, because one job runs at a
-- time. Not TRUNCATE: it is not MVCC-safe. A pg_dump whose snapshot is older than the fold would read an empty log and
-- old totals.
-- Locks: SHARE ROW EXCLUSIVE on that one log, before it is read. It waits for writers, because the count of an
-- uncommitted publish would be left behind otherwise, and not for readers (pg_dump, postroom check), which hold ACCESS
-- SHARE.
CREATE OR REPLACE FUNCTION messagebox.fold_ref_count_log(p_kind text, p_log smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    log text := format('%s_ref_count_log_%s', p_kind, p_log);
    totals text := format('%s_ref_count_log_totals', p_kind);
    zero_sum text := format('%s_zero_sum', p_kind);
    id text := format('%s_id', p_kind);
    folded bigint;
BEGIN
    IF p_kind NOT IN ('message', 'part') OR p_log NOT IN (1, 2) THEN
        RAISE EXCEPTION 'there is no ref-count log % of kind %', p_log, p_kind;
    END IF;
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', log);
    EXECUTE format($sql$
        WITH deltas AS (DELETE FROM %2$I RETURNING %1$I AS id, counted_in, delta),
             sums AS (SELECT id, counted_in, sum(delta) AS delta, count(*) AS n FROM deltas GROUP BY 1, 2),
             counts AS MATERIALIZED (
                SELECT s.id, s.counted_in, s.delta,
                       (SELECT t.ctid FROM %3$I t WHERE t.%1$I = s.id AND t.counted_in = s.counted_in
                                                    AND t.total + s.delta = 0) AS ended
                  FROM sums s WHERE s.delta <> 0),
             removed AS (
                DELETE FROM %3$I
                 WHERE ctid = ANY (ARRAY(SELECT c.ended FROM counts c WHERE c.ended IS NOT NULL))),
             changed AS (
                INSERT INTO %3$I AS t (%1$I, counted_in, total)
                SELECT c.id, c.counted_in, c.delta FROM counts c WHERE c.ended IS NULL
                ON CONFLICT (%1$I, counted_in) DO UPDATE SET total = t.total + excluded.total),
             zero AS (
                INSERT INTO %4$I (%1$I)
                SELECT c.id FROM counts c WHERE c.ended IS NOT NULL
                UNION ALL
                SELECT s.id FROM sums s WHERE s.delta = 0
                ON CONFLICT DO NOTHING)
        SELECT coalesce(sum(n), 0) FROM sums $sql$, id, log, totals, zero_sum) INTO folded;
    RETURN folded;
END $$;
