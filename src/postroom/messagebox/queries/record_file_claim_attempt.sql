-- Record that a task is about to process a file alone. Attempts of before the last restart of PostgreSQL do not count.
-- Index: primary key of file_claims. Locks: the row.
UPDATE file_claims
   SET attempts = CASE WHEN attempts_since = pg_postmaster_start_time() THEN attempts ELSE 0 END + 1,
       attempts_since = pg_postmaster_start_time()
 WHERE interchange_id = %s
RETURNING attempts
