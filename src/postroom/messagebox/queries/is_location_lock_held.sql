-- One row if this session holds an advisory lock with this class and number in this database.
SELECT 1 FROM pg_locks
 WHERE locktype = 'advisory' AND classid = %s AND objid = %s::bigint AND objsubid = 2
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND pid = pg_backend_pid() AND granted
