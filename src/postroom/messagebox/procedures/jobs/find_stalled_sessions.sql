-- The sessions of Postroom that wait for their client inside a transaction, and hold the routing lock or block another
-- session. Two calls that return the same activity for a session show that its client did nothing in between: a frozen
-- client in the middle of a COPY is not idle, so no timeout of PostgreSQL ends it.
-- Locks: none. The owner has to be a member of pg_read_all_stats.
CREATE OR REPLACE FUNCTION messagebox.find_stalled_sessions(
    OUT session integer, OUT application text, OUT activity text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH blocking AS (
        SELECT unnest(pg_blocking_pids(a.pid)) AS pid, false AS has_routing_lock FROM pg_stat_activity a
         WHERE a.wait_event_type = 'Lock' AND a.datname = current_database()
        UNION
        SELECT l.pid, true FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.classid = 7001 AND l.objid = 0 AND l.objsubid = 2 AND l.granted
    )
    SELECT DISTINCT a.pid, a.application_name, concat_ws(' ', a.backend_start, a.state_change, c.bytes_processed)
      FROM blocking b JOIN pg_stat_activity a USING (pid) LEFT JOIN pg_stat_progress_copy c USING (pid)
     WHERE a.datname = current_database() AND a.xact_start IS NOT NULL AND a.wait_event_type = 'Client'
       AND (b.has_routing_lock OR a.application_name LIKE 'postroom%')
$$;
