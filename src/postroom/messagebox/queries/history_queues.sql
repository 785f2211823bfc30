-- The queues for the history source: one row for each message and service, with the names of its host and its
-- service. A row keeps its number (range_key) when it moves between the queues, so it is in one range of numbers only.
-- Reads all rows of the three queues for each range of numbers.
SELECT i.seq AS range_key, i.seq, i.instance_id, i.message_id, h.name AS host,
       i.service_class::text AS service_class, coalesce(v.name, s.service_name) AS service, i.state::text AS state,
       CASE i.task WHEN 'join_instance' THEN 'join' ELSE i.task::text END AS task, i.attempt,
       i.priority::integer AS priority, i.enqueued_at, i.valid_from, i.suspended_at, i.error_code, i.error_description,
       i.adapter, i.uri
  FROM instances i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN services v ON v.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
