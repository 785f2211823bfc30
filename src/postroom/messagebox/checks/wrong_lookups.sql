-- Lookups without their content, contents without a lookup, and entries that are newer than the version of their
-- lookup, so that caches would not notice them.
SELECT 'lookup ' || coalesce(s.name, l.service_id::text)
  FROM lookup_contents l
  FULL JOIN (SELECT * FROM services WHERE kind = 'lookup' AND removed_at IS NULL) s ON s.id = l.service_id
 WHERE s.id IS NULL OR l.id IS NULL
UNION ALL
SELECT 'lookup ' || l.service_id || ', key ' || e.key
  FROM lookup_contents l JOIN lookup_entries e ON e.lookup_id = l.id
 WHERE e.version > l.version
