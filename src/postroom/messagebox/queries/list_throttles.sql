-- How running host instances are throttled: the delivery of each, and its publishing if the process itself throttles
-- it.
SELECT i.host_id, i.server, i.pid, d.direction, coalesce(t.state, 0) AS state, coalesce(t.severity, 0) AS severity,
       coalesce(t.delay, 0) AS delay, t.since, coalesce(t.reason, '') AS reason
  FROM messagebox.host_instances i
 CROSS JOIN LATERAL (VALUES ('delivery'), ('publishing')) AS d(direction)
 CROSS JOIN LATERAL jsonb_to_record(coalesce(i.throttles -> d.direction, '{}'))
            AS t(state integer, severity float, delay float, since timestamptz, reason text)
 WHERE i.kind = 'host' AND (d.direction = 'delivery' OR t.state IS NOT NULL)
   AND i.id IN (SELECT l.objid FROM pg_locks l
                 WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objsubid = 2 AND l.granted
                   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
 ORDER BY i.id, d.direction
