-- The load of the MessageBox, and the thresholds and overrides of a host. Index: primary key of hosts.
SELECT l.queued, l.spooled, l.suspended, l.incoming, l.outgoing, l.sessions, h.throttling, h.throttling_overrides
  FROM current_load() l, messagebox.hosts h
 WHERE h.id = %s
