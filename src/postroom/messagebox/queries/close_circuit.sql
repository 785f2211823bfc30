-- Close the circuit breaker of a send port. release_paused_<host> releases its messages.
UPDATE messagebox.open_circuits SET closed_at = now()
 WHERE port_id = %(port_id)s AND host_id = %(host_id)s AND closed_at IS NULL
