-- Activation subscriptions that can be matched, a batch at a time, by id.
-- Index: the primary key. Instance subscriptions are excluded: there may be millions, and each waits for single
-- messages.
SELECT s.id, s.service_id, s.service_name, s.group_name, h.name, s.state, s.filter
  FROM subscriptions s
  JOIN hosts h ON h.id = s.host_id
 WHERE s.id > %(after)s AND s.removed_at IS NULL AND s.instance_id IS NULL
 ORDER BY s.id
 LIMIT %(limit)s
