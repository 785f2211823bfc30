-- Record why the last probe of an open circuit breaker failed.
UPDATE messagebox.open_circuits SET reason = %(reason)s
 WHERE port_id = %(port_id)s AND host_id = %(host_id)s AND closed_at IS NULL
