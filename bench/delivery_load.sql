-- Inserts messages of 1 KB with the context of an order, each with one row in the work queue of the default host. The
-- send ports take turns. The rows of ordered ports have the port as their instance (task deliver_in_order).
WITH m AS MATERIALIZED (
    SELECT gen_random_uuid() AS message_id, gen_random_uuid() AS part_id,
           (%(ports)s::uuid[])[1 + mod(n, cardinality(%(ports)s::uuid[]))] AS port
      FROM generate_series(1, %(count)s) n
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
    SELECT message_id, ARRAY[part_id], part_id, 'body', %(context)s::jsonb, true FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
    SELECT part_id, 'body', 'application/json', length(%(body)s::bytea), %(body)s::bytea, true FROM m
)
INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task)
SELECT %(host_id)s, message_id, 1, 'messaging_in_process', port,
       CASE WHEN %(ordered)s THEN port ELSE gen_random_uuid() END, 5,
       CASE WHEN %(ordered)s THEN 'deliver_in_order' ELSE 'deliver' END::queue_task
  FROM m
