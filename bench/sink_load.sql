-- Inserts messages with a text body of 200 bytes and the context of an order, each with one row in the work queue of
-- the default host for a sink. Region, total and priority differ from message to message. Every 10,000 messages have
-- neighbouring ids, as those of one file have.
WITH m AS MATERIALIZED (
    SELECT (unit || lpad(to_hex(n), 10, '0'))::uuid AS message_id,
           (unit || lpad(to_hex(n + (1::bigint << 38)), 10, '0'))::uuid AS part_id, n,
           replace(replace(replace(%(context)s, '@region', 'R' || n %% 400),
                           '@total', ((n %% 1000000) / 100.0)::numeric(12, 2)::text),
                   '"@priority"', (n %% 9)::text)::jsonb AS context,
           convert_to(rpad('order ' || n || ' ', 200, 'x'), 'UTF8') AS body
      FROM (SELECT n, left(md5((n / 10000)::text), 22) AS unit FROM generate_series(1, %(count)s) n) u
), spooled AS (
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, only_reference)
    SELECT message_id, ARRAY[part_id], part_id, 'body', context, true FROM m
), stored AS (
    INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
    SELECT part_id, 'body', 'text/plain', length(body), body, true FROM m
)
INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority)
SELECT %(host_id)s, message_id, 1, 'spark_sinks', %(service_id)s, gen_random_uuid(), 5 FROM m ORDER BY n
