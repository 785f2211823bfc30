-- Inserts messages of 1 KB, each of which activates an instance of an orchestration of the default host.
WITH m AS MATERIALIZED (
    SELECT gen_random_uuid() AS message_id, gen_random_uuid() AS part_id FROM generate_series(1, %(count)s)
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
    SELECT message_id, ARRAY[part_id], part_id, 'body', %(context)s::jsonb, true FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
    SELECT part_id, 'body', 'application/json', length(%(body)s::bytea), %(body)s::bytea, true FROM m
)
INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task)
SELECT %(host_id)s, message_id, %(subscription_id)s, 'orchestrations', %(service_id)s, gen_random_uuid(), 7, 'deliver'
  FROM m
