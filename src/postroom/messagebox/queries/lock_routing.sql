-- Call lock_routing, and return whether this transaction has changed the routing itself (change_routing).
-- Locks: advisory (7001, 0) shared, until the transaction ends.
SELECT version, message_log, part_log, coalesce(current_setting('postroom.routing_changed', true), '') = 'yes'
  FROM lock_routing()
