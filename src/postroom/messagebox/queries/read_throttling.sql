-- The load of the MessageBox and the thresholds of a host. Index: primary key of hosts.
SELECT l.queued, l.spooled, l.suspended, h.throttle_messages, h.throttle_spool_multiplier, h.throttle_longest_delay
  FROM current_load() l, management.hosts h
 WHERE h.id = %s
