-- Return the load of the MessageBox: the rows in all queues and in the spool. Measures again if the last measurement is
-- older than p_max_age and no other session is measuring. It does not count rows but adds up PostgreSQL's counters of
-- live rows, which sessions update about a second after their commits. A crash of the server resets these counters, so
-- the tables are analysed after a reset. That takes samples, and is repeated next time if a vacuum blocks it.
-- Locks: advisory (7001, 2) for the transaction, if it is free; the row of load.
CREATE OR REPLACE FUNCTION messagebox.current_load(
    p_max_age interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queued bigint, spooled bigint, measured_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET synchronous_commit = off SET lock_timeout = '200ms' AS $$
DECLARE
    known load;
    counted oid[];
    since timestamptz := pg_stat_get_bgwriter_stat_reset_time();
    one oid;
BEGIN
    SELECT * INTO STRICT known FROM load;
    -- A measurement in the future was made before the clock was set back.
    IF known.measured_at > p_now - p_max_age AND known.measured_at <= p_now
       OR NOT pg_try_advisory_xact_lock(7001, 2) THEN
        RETURN QUERY SELECT known.queued, known.spooled, known.measured_at;
        RETURN;
    END IF;
    counted := ARRAY(SELECT i.inhrelid FROM pg_inherits i
                      WHERE i.inhparent IN ('work_queue'::regclass, 'scheduled_queue'::regclass,
                                            'suspended_queue'::regclass));
    IF since IS DISTINCT FROM known.statistics_since THEN
        BEGIN
            FOREACH one IN ARRAY counted || 'spool'::regclass::oid LOOP
                EXECUTE format('ANALYZE %s', one::regclass);
            END LOOP;
        EXCEPTION WHEN lock_not_available THEN
            since := known.statistics_since;
        END;
    END IF;
    known.queued := (SELECT coalesce(sum(greatest(pg_stat_get_live_tuples(t), 0)), 0) FROM unnest(counted) AS t);
    known.spooled := greatest(pg_stat_get_live_tuples('spool'::regclass), 0);
    known.measured_at := p_now;
    UPDATE load l SET queued = known.queued, spooled = known.spooled, measured_at = p_now,
                      statistics_since = since;
    RETURN QUERY SELECT known.queued, known.spooled, known.measured_at;
END $$;
