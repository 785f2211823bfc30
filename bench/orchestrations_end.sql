-- Ends a batch of instances, releases their messages, and publishes one message of each, as a host does. Used by the
-- bare loop. References go to log 1, because no job changes the active log during the measurement.
WITH ended AS (
    DELETE FROM orchestration_instances WHERE instance_id = ANY (%(instances)s) RETURNING instance_id
), done AS (
    DELETE FROM orchestration_messages WHERE instance_id = ANY (%(instances)s) RETURNING message_id, counted_in
), released AS (
    INSERT INTO message_ref_count_log_1 SELECT message_id, -1, counted_in FROM done
), released_parts AS (
    INSERT INTO part_ref_count_log_1
    SELECT unnest(s.part_ids), -1, d.counted_in FROM done d JOIN spool s ON s.message_id = d.message_id
), m AS MATERIALIZED (
    SELECT * FROM unnest(%(messages)s::uuid[], %(parts)s::uuid[], %(contexts)s::jsonb[], %(bodies)s::bytea[])
               AS m (message_id, part_id, context, body)
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)
    SELECT message_id, ARRAY[part_id], part_id, 'body', context FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body)
    SELECT part_id, 'body', 'application/octet-stream', length(body), body FROM m
), messages AS (
    INSERT INTO message_ref_count_log_1 SELECT message_id, 1 FROM m
), parts AS (
    INSERT INTO part_ref_count_log_1 SELECT part_id, 1 FROM m
)
INSERT INTO sender_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task)
SELECT %(host_id)s, message_id, 1, 4, %(port)s, gen_random_uuid(), 5, 1 FROM m
