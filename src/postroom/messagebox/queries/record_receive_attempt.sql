-- Record that a process is about to receive an interchange alone. Attempts before the last restart of PostgreSQL do not
-- count. Index: primary key of receive_attempts. Locks: the row.
INSERT INTO receive_attempts AS a (interchange_id, location_id, attempts, attempts_since)
VALUES (%s, %s, 1, pg_postmaster_start_time())
    ON CONFLICT (interchange_id) DO UPDATE
       SET attempts = CASE WHEN a.attempts_since = pg_postmaster_start_time() THEN a.attempts ELSE 0 END + 1,
           attempts_since = pg_postmaster_start_time()
RETURNING attempts
