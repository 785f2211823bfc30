-- The entries of a lookup, by key. Index: the primary key of lookup_entries.
SELECT e.key, e.message_id, e.applied_at, e.content_type, octet_length(e.body) AS size
  FROM lookup_entries e
 WHERE e.lookup_id = %(lookup_id)s AND e.part_name IS NOT NULL
 ORDER BY e.key
 LIMIT %(limit)s
