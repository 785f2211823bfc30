-- The object ids of the advisory locks of one class that are held in this database.
SELECT objid FROM pg_locks
 WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
