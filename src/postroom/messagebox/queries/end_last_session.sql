-- End the last session of a host instance if it still has the lock of the instance. After the network broke, the server
-- may not have noticed yet that the client is gone.
SELECT pg_terminate_backend(pid) FROM pg_locks
 WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND classid = %s AND objid = %s AND pid = %s
