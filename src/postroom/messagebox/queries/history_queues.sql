-- The queues for the history source: one row for each message and service, with the names of its host and its
-- service. A row keeps its number (range_key) when it moves between the queues, so it is in one range of numbers only.
-- Reads all rows of the three queues for each range of numbers.
SELECT i.seq AS range_key, i.seq, i.instance_id, i.message_id, h.name AS host,
       CASE i.service_class WHEN 1 THEN 'orchestrations' WHEN 4 THEN 'messaging_in_process' WHEN 16 THEN 'caching'
                            WHEN 32 THEN 'messaging_isolated' WHEN 64 THEN 'routing_failure_report'
                            WHEN 128 THEN 'spark_sinks' ELSE 'programs' END AS service_class,
       coalesce(v.name, s.service_name) AS service,
       CASE i.state WHEN 1 THEN 'ready to run' WHEN 2 THEN 'active' WHEN 4 THEN 'suspended'
                    WHEN 8 THEN 'waiting' WHEN 256 THEN 'scheduled' WHEN 1024 THEN 'waiting to retry'
                    ELSE 'suspended, not resumable' END AS state,
       CASE i.task WHEN 1 THEN 'deliver' WHEN 2 THEN 'receive' WHEN 3 THEN 'publish' WHEN 4 THEN 'join'
                   ELSE 'reroute' END AS task,
       i.attempt, i.priority::integer AS priority, i.enqueued_at, i.valid_from, i.suspended_at, i.error_code,
       i.error_description, i.adapter, i.uri
  FROM instances i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN services v ON v.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
