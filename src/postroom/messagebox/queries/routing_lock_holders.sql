-- The sessions that hold the routing lock, those with the oldest transaction first.
SELECT a.pid, a.application_name, a.usename
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.classid = 7001 AND l.objid = 0 AND l.objsubid = 2 AND l.granted
   AND a.datname = current_database() AND a.pid <> pg_backend_pid()
 ORDER BY a.xact_start, a.pid
