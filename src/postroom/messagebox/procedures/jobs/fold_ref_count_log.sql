-- Second half of a fold, in a transaction of its own with a lock timeout: waits for the writers of one log, adds its
-- deltas to the totals, notes the sums that are zero, and empties it. Returns how many log rows there were. What came and
-- went within one log never gets a total; whether it has one from before is for the cleanup to see.
-- Locks: ACCESS EXCLUSIVE on that one log, before it is read; without it the count of an uncommitted publish is lost.
CREATE OR REPLACE FUNCTION messagebox.fold_ref_count_log(p_kind text, p_log smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
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
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', log);
    EXECUTE format($sql$
        WITH sums AS (SELECT %1$I AS id, sum(delta) AS delta, count(*) AS n FROM %2$I GROUP BY 1),
             kept AS (
                INSERT INTO %3$I AS t (%1$I, total)
                SELECT s.id, s.delta FROM sums s WHERE s.delta <> 0
                ON CONFLICT (%1$I) DO UPDATE SET total = t.total + excluded.total
                RETURNING t.%1$I AS id, t.total),
             zero AS (
                INSERT INTO %4$I (%1$I)
                SELECT k.id FROM kept k WHERE k.total = 0
                UNION ALL
                SELECT s.id FROM sums s WHERE s.delta = 0
                ON CONFLICT DO NOTHING)
        SELECT coalesce(sum(n), 0) FROM sums $sql$, id, log, totals, zero_sum) INTO folded;
    IF folded > 0 THEN
        EXECUTE format('TRUNCATE TABLE %I', log);
    END IF;
    RETURN folded;
END $$;
