-- Inserts messages of 500 bytes, each with one suspended row of the send port that is given, and its reference counts.
WITH m AS MATERIALIZED (
    SELECT gen_random_uuid() AS message_id, gen_random_uuid() AS part_id FROM generate_series(1, %(count)s)
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
    SELECT message_id, ARRAY[part_id], part_id, 'body', '{}', true FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
    SELECT part_id, 'body', 'application/json', 500, decode(repeat('78', 500), 'hex'), true FROM m
)
INSERT INTO suspended_queue (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority,
                             cause, error_code, error_description)
SELECT p.host_id, m.message_id, p.subscription_id, 'messaging_in_process', p.id, gen_random_uuid(), 5, 'failure',
       'DELIVERY', 'The receiver is down.'
  FROM m CROSS JOIN send_ports p
 WHERE p.name = %(port)s
