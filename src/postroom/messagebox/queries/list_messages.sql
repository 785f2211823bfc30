-- The messages in the spool, the latest first: type, number of parts, size of all of them.
-- Reads the spool whole; parts by their primary key, for the messages that are shown.
SELECT s.message_id, s.published_at, s.published_by, s.context -> 'promoted' ->> %(type_key)s,
       cardinality(s.part_ids), s.body_part_name, (SELECT sum(p.size) FROM parts p WHERE p.part_id = ANY (s.part_ids))
  FROM spool s
 WHERE %(type)s::text IS NULL OR s.context -> 'promoted' ->> %(type_key)s = %(type)s
 ORDER BY s.published_at DESC, s.message_id
 LIMIT %(limit)s
