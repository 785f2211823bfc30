-- The other databases of this server in which processes of hosts with these logins run. Such a process holds the
-- advisory lock of processes. Every login sees the locks and the names of all databases.
SELECT DISTINCT a.datname::text
  FROM pg_locks l
  JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %(lock_class)s AND a.datname <> current_database()
   AND a.usename = ANY (%(logins)s)
 ORDER BY 1
