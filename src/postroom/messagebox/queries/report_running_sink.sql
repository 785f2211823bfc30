-- What a sink says of itself now. The first report of a process begins anew; later ones keep when it was started, and
-- since when its state is what it is. Index: running_sinks' primary key.
INSERT INTO management.running_sinks AS r (port_id, state, reason, server, pid, batches, written, last_batch_at)
VALUES (%(port_id)s, %(state)s, %(reason)s, %(server)s, %(pid)s, %(batches)s, %(written)s, %(last_batch_at)s)
    ON CONFLICT (port_id) DO UPDATE
       SET started_at = CASE WHEN %(first)s THEN now() ELSE r.started_at END,
           since = CASE WHEN r.state = excluded.state AND NOT %(first)s THEN r.since ELSE now() END,
           state = excluded.state, reason = excluded.reason, server = excluded.server, pid = excluded.pid,
           batches = excluded.batches, written = excluded.written,
           last_batch_at = coalesce(excluded.last_batch_at, r.last_batch_at), updated_at = now()
