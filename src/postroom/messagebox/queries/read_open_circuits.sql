-- The open circuit breakers of some send ports (null: of all), of one host (null: of all).
-- Indexes: none needed; there are few.
SELECT port_id, opened_at, opened_by, reason, next_probe_at, probe_seq, probes
  FROM messagebox.open_circuits
 WHERE closed_at IS NULL AND (%(ports)s::uuid[] IS NULL OR port_id = ANY (%(ports)s))
   AND (%(host_id)s::smallint IS NULL OR host_id = %(host_id)s)
