-- The registered processes of hosts whose session lock is held, with the version of the configuration that they use.
SELECT i.id AS process_id, i.kind, h.name AS host, i.server, i.pid, i.routing_version
  FROM messagebox.host_instances i
  JOIN messagebox.hosts h ON h.id = i.host_id
 WHERE i.id IN (SELECT l.objid FROM pg_locks l
                 WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objsubid = 2 AND l.granted
                   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
 ORDER BY h.name, i.kind, i.id
