-- Return the load of the MessageBox: the rows in all queues and in the spool. Measures again if the last measurement is
-- older than p_max_age and no other session is measuring. It does not count rows but adds up PostgreSQL's counters of
-- live rows, which sessions update about a second after their commits. A crash of the server resets these counters, so
-- the tables are analysed after a reset. That takes samples, and is repeated next time if a vacuum blocks it.
-- Above the lowest threshold of a host, the suspended rows of each receive location are counted, because they slow down
-- this location alone. A count that takes long is repeated less often: counting takes at most 5 % of the time.
-- Index: suspended_queue_received.
-- Locks: advisory (7001, 2) for the transaction, if it is free; the row of load.
CREATE OR REPLACE FUNCTION messagebox.current_load(
    p_max_age interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queued bigint, spooled bigint, measured_at timestamptz, suspended jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET synchronous_commit = off SET lock_timeout = '200ms' AS $$
DECLARE
    known load;
    counted oid[];
    since timestamptz := pg_stat_get_bgwriter_stat_reset_time();
    one oid;
    count_started timestamptz;
BEGIN
    SELECT * INTO STRICT known FROM load;
    -- A measurement in the future was made before the clock was set back.
    IF known.measured_at > p_now - greatest(p_max_age, 20 * known.counted_in) AND known.measured_at <= p_now
       OR NOT pg_try_advisory_xact_lock(7001, 2) THEN
        RETURN QUERY SELECT known.queued, known.spooled, known.measured_at, known.suspended;
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
    known.suspended := '{}';
    known.counted_in := '0';
    IF EXISTS (SELECT 1 FROM hosts h
                WHERE h.throttle_messages > 0
                  AND (known.queued > h.throttle_messages
                       OR known.spooled > h.throttle_messages * nullif(h.throttle_spool_multiplier, 0))) THEN
        count_started := clock_timestamp();
        known.suspended := (SELECT coalesce(jsonb_object_agg(coalesce(c.service_id::text, ''), c.row_count), '{}')
                              FROM (SELECT q.service_id, count(*) AS row_count FROM suspended_queue q
                                     WHERE q.task IN (2, 3) OR q.cause = 3
                                     GROUP BY q.service_id) c);
        known.counted_in := clock_timestamp() - count_started;
    END IF;
    UPDATE load l SET queued = known.queued, spooled = known.spooled, measured_at = p_now,
                      suspended = known.suspended, counted_in = known.counted_in, statistics_since = since;
    RETURN QUERY SELECT known.queued, known.spooled, known.measured_at, known.suspended;
END $$;
