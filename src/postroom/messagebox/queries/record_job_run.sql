-- Record one run of a job: its name, its start, the number of rows, and the error if it failed.
-- Index: job_runs' primary key.
INSERT INTO management.job_runs AS j (name, started_at, finished_at, runs, rows_last, rows_total, error)
SELECT r.name, r.started_at, clock_timestamp(), 1, r.rows, r.rows, r.error
  FROM (VALUES (%s::text, %s::timestamptz, %s::bigint, %s::text)) AS r (name, started_at, rows, error)
    ON CONFLICT (name) DO UPDATE
       SET started_at = excluded.started_at, finished_at = excluded.finished_at, runs = j.runs + 1,
           rows_last = excluded.rows_last, rows_total = j.rows_total + excluded.rows_last, error = excluded.error
