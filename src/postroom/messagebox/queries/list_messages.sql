-- The messages in the spool, newest first: type, number of parts, size of all parts, and for an error message the port
-- where the original message failed.
-- Reads all rows of the spool, and the parts of the shown messages by their primary key.
SELECT s.message_id, s.published_at, s.published_by, s.context -> 'promoted' ->> %(type_key)s AS message_type,
       coalesce(s.context -> 'promoted' ->> %(send_port_key)s,
                s.context -> 'promoted' ->> %(receive_port_key)s) AS failed_at,
       cardinality(s.part_ids) AS parts, s.body_part_name AS body_part,
       (SELECT coalesce(sum(p.size), 0)::bigint FROM parts p WHERE p.part_id = ANY (s.part_ids)) AS size
  FROM spool s
 WHERE %(type)s::text IS NULL OR s.context -> 'promoted' ->> %(type_key)s = %(type)s
 ORDER BY s.published_at DESC, s.message_id
 LIMIT %(limit)s
