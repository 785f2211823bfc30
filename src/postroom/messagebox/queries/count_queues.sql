-- The number of messages and the oldest one of each host and state. Reads all rows of the queues.
SELECT h.name, q.state, coalesce(c.rows, 0), c.oldest, now() - c.oldest
  FROM hosts h
 CROSS JOIN unnest(enum_range(NULL::instance_state)) AS q (state)
  LEFT JOIN (SELECT host_id, state, count(*) AS rows, min(enqueued_at) AS oldest FROM instances GROUP BY 1, 2) c
         ON c.host_id = h.id AND c.state = q.state
 ORDER BY h.name, q.state
