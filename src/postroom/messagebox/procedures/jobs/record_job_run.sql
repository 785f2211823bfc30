-- Record one run of a job that ends now: its name, its start, the number of rows, and the error if it failed. Hosts do
-- not write job_runs, because a run in the future would stop the job.
-- Index: job_runs' primary key.
CREATE OR REPLACE FUNCTION messagebox.record_job_run(p_name text, p_started_at timestamptz, p_rows bigint, p_error text)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO job_runs AS j (name, started_at, finished_at, runs, rows_last, rows_total, error)
    VALUES (p_name, p_started_at, clock_timestamp(), 1, p_rows, p_rows, p_error)
    ON CONFLICT (name) DO UPDATE
       SET started_at = excluded.started_at, finished_at = excluded.finished_at, runs = j.runs + 1,
           rows_last = excluded.rows_last, rows_total = j.rows_total + excluded.rows_last, error = excluded.error;
$$;
