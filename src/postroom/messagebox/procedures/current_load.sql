-- Return the load of the MessageBox: the rows in all queues and in the spool. Measures again if the last measurement is
-- older than p_max_age and no other session is measuring. It does not count rows but adds up PostgreSQL's counters of
-- live rows, which sessions update about a second after their commits. A crash of the server resets these counters, so
-- the tables are analysed after a reset. That takes samples, and is repeated next time if a vacuum blocks it.
-- Above the lowest threshold of a host, the suspended rows of each receive location are counted, because they slow down
-- this location alone. A count that takes long is repeated less often: counting takes at most 5 % of the time.
-- The rows that came into the queues and left them are compared in windows of 15 seconds. A window that nobody
-- has ended in time is discarded.
-- Index: suspended_queue_received.
-- Locks: advisory (7001, 2) for the transaction, if it is free; the row of load.
CREATE OR REPLACE FUNCTION messagebox.current_load(
    p_max_age interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp())
RETURNS TABLE (queued bigint, spooled bigint, measured_at timestamptz, suspended jsonb,
               incoming bigint, outgoing bigint, sessions bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET synchronous_commit = off SET lock_timeout = '200ms' AS $$
DECLARE
    known load;
    counted oid[];
    since timestamptz := pg_stat_get_bgwriter_stat_reset_time();
    one oid;
    inserted_now bigint;
    deleted_now bigint;
    count_started timestamptz;
BEGIN
    SELECT * INTO STRICT known FROM load;
    -- A measurement in the future was made before the clock was set back.
    IF known.measured_at > p_now - greatest(p_max_age, 20 * known.counted_in) AND known.measured_at <= p_now
       OR NOT pg_try_advisory_xact_lock(7001, 2) THEN
        RETURN QUERY SELECT known.queued, known.spooled, known.measured_at, known.suspended,
                            known.incoming, known.outgoing, known.sessions;
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
    known.sessions := pg_stat_get_db_numbackends((
        SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
    SELECT coalesce(sum(pg_stat_get_tuples_inserted(t)), 0), coalesce(sum(pg_stat_get_tuples_deleted(t)), 0)
      INTO inserted_now, deleted_now FROM unnest(counted) AS t;
    IF known.window_start NOT BETWEEN p_now - interval '15 seconds' AND p_now THEN
        known.incoming := greatest(inserted_now - known.inserted, 0);
        known.outgoing := greatest(deleted_now - known.deleted, 0);
        IF known.window_start NOT BETWEEN p_now - interval '30 seconds' AND p_now THEN
            known.incoming := 0;
            known.outgoing := 0;
        END IF;
        known.inserted := inserted_now;
        known.deleted := deleted_now;
        known.window_start := p_now;
    END IF;
    known.measured_at := p_now;
    known.suspended := '{}';
    known.counted_in := '0';
    IF EXISTS (SELECT 1 FROM hosts h
                     CROSS JOIN LATERAL jsonb_to_record(h.throttling) AS t(messages bigint, spool_multiplier float)
                WHERE t.messages > 0
                  AND (known.queued > t.messages / 2
                       OR known.spooled > t.messages * nullif(t.spool_multiplier, 0))) THEN
        count_started := clock_timestamp();
        known.suspended := (SELECT coalesce(jsonb_object_agg(c.source, c.row_count), '{}')
                              FROM (SELECT CASE WHEN q.cause = 'routing failure report' THEN 'reports'
                                                ELSE coalesce(q.service_id::text, '') END AS source,
                                           count(*) AS row_count
                                      FROM suspended_queue q
                                     WHERE q.task IN ('receive', 'publish') OR q.cause = 'routing failure report'
                                     GROUP BY 1) c);
        known.counted_in := clock_timestamp() - count_started;
    END IF;
    UPDATE load l SET queued = known.queued, spooled = known.spooled, measured_at = p_now,
                      suspended = known.suspended, counted_in = known.counted_in, statistics_since = since,
                      sessions = known.sessions, incoming = known.incoming, outgoing = known.outgoing,
                      inserted = known.inserted, deleted = known.deleted, window_start = known.window_start;
    RETURN QUERY SELECT known.queued, known.spooled, known.measured_at, known.suspended,
                        known.incoming, known.outgoing, known.sessions;
END $$;
