-- Store the progress of a sink. The first report of a process resets the row. Later reports keep the start time and the
-- time of the last change of state. Index: running_sinks' primary key.
INSERT INTO messagebox.running_sinks AS r (port_id, state, reason, server, pid, batches, written, rate, last_batch_at)
VALUES (%(port_id)s, %(state)s, %(reason)s, %(server)s, %(pid)s, %(batches)s, %(written)s, %(rate)s, %(last_batch_at)s)
    ON CONFLICT (port_id) DO UPDATE
       SET started_at = CASE WHEN %(first)s THEN now() ELSE r.started_at END,
           since = CASE WHEN r.state = excluded.state AND NOT %(first)s THEN r.since ELSE now() END,
           state = excluded.state, reason = excluded.reason, server = excluded.server, pid = excluded.pid,
           batches = excluded.batches, written = excluded.written, rate = excluded.rate,
           last_batch_at = coalesce(excluded.last_batch_at, r.last_batch_at), updated_at = now()
