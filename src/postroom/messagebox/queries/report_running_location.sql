-- Store the progress of a receive location. The first report of a process resets the row. Later reports keep the start
-- time and the time of the last change of state. Index: running_locations' primary key.
INSERT INTO messagebox.running_locations AS r (location_id, state, reason, server, pid, rows, suspended, rate,
                                               remaining, remaining_unit, last_batch_at)
VALUES (%(location_id)s, %(state)s, %(reason)s, %(server)s, %(pid)s, %(rows)s, %(suspended)s, %(rate)s, %(remaining)s,
        %(remaining_unit)s, %(last_batch_at)s)
    ON CONFLICT (location_id) DO UPDATE
       SET started_at = CASE WHEN %(first)s THEN now() ELSE r.started_at END,
           since = CASE WHEN r.state = excluded.state AND NOT %(first)s THEN r.since ELSE now() END,
           state = excluded.state, reason = excluded.reason, server = excluded.server, pid = excluded.pid,
           rows = excluded.rows, suspended = excluded.suspended, rate = excluded.rate, remaining = excluded.remaining,
           remaining_unit = excluded.remaining_unit, last_batch_at = excluded.last_batch_at, updated_at = now()
