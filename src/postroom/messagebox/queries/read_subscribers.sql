-- Activation subscriptions that can be matched, a batch at a time in the order of their ids.
-- Index: the primary key. Instance subscriptions wait for single messages, by the million, and are not looked at.
SELECT s.id, s.service_id, s.service_name, s.group_name, h.name, s.state, s.filter
  FROM subscriptions s
  JOIN hosts h ON h.id = s.host_id
 WHERE s.id > %(after)s AND s.removed_at IS NULL AND s.instance_id IS NULL AND s.state <> 3
 ORDER BY s.id
 LIMIT %(limit)s
