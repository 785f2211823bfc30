-- Open the circuit breaker of a send port. Does nothing if another host instance has opened it. One that was closed,
-- and whose messages are still being released, is opened again.
INSERT INTO messagebox.open_circuits (port_id, host_id, opened_by, reason, probe_interval, next_probe_at)
VALUES (%(port_id)s, %(host_id)s, %(opened_by)s, %(reason)s, %(probe_interval)s, now() + %(probe_interval)s)
    ON CONFLICT (port_id, host_id) DO UPDATE
       SET opened_at = excluded.opened_at, opened_by = excluded.opened_by, reason = excluded.reason,
           probe_interval = excluded.probe_interval, next_probe_at = excluded.next_probe_at, closed_at = NULL
     WHERE open_circuits.closed_at IS NOT NULL
