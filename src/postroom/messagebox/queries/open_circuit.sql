-- Open the circuit breaker of a send port. Does nothing if another host instance has opened it. One that was closed,
-- and whose messages are still being released, is opened again. A port that was removed meanwhile gets none.
INSERT INTO messagebox.open_circuits (port_id, host_id, opened_by, reason, probe_interval, next_probe_at)
SELECT id, %(host_id)s, %(opened_by)s, %(reason)s, %(probe_interval)s, now() + %(probe_interval)s
  FROM messagebox.services
 WHERE id = %(port_id)s AND removed_at IS NULL
    ON CONFLICT (port_id, host_id) DO UPDATE
       SET opened_at = excluded.opened_at, opened_by = excluded.opened_by, reason = excluded.reason,
           probe_interval = excluded.probe_interval, next_probe_at = excluded.next_probe_at, closed_at = NULL
     WHERE open_circuits.closed_at IS NOT NULL
