-- Ends a batch of instances, deletes their messages and the parts of these, whose only references they were, and
-- publishes one message of each, as a host does. Used by the bare loop.
WITH ended AS (
    DELETE FROM orchestration_instances WHERE instance_id = ANY (%(instances)s) RETURNING instance_id
), done AS (
    DELETE FROM orchestration_messages WHERE instance_id = ANY (%(instances)s) RETURNING message_id, counted_in
), released AS (
    DELETE FROM spool s USING done d
     WHERE s.message_id = d.message_id AND s.counted_in = d.counted_in AND s.only_reference
    RETURNING s.part_ids, s.counted_in
), released_parts AS (
    DELETE FROM parts p USING (SELECT unnest(r.part_ids) AS part_id, r.counted_in FROM released r) r
     WHERE p.part_id = r.part_id AND p.counted_in = r.counted_in AND p.only_reference
), m AS MATERIALIZED (
    SELECT * FROM unnest(%(messages)s::uuid[], %(parts)s::uuid[], %(contexts)s::jsonb[], %(bodies)s::bytea[])
               AS m (message_id, part_id, context, body)
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
    SELECT message_id, ARRAY[part_id], part_id, 'body', context, true FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
    SELECT part_id, 'body', 'application/octet-stream', length(body), body, true FROM m
)
INSERT INTO sender_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task)
SELECT %(host_id)s, message_id, 1, 'messaging_in_process', %(port)s, gen_random_uuid(), 5, 'deliver' FROM m
