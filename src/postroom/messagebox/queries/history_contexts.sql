-- The properties of stored messages for the history source: one row for each property of each message, its value as
-- text. Properties have their dotted names. Values of sensitive properties are hidden. The originator is the
-- authenticated one, not the one in the context. Message predicates are included. Other statements select from this
-- one.
-- Reads the spool by ranges of its pages (range_key) and properties by their key.
SELECT s.ctid AS range_key, s.message_id, s.published_at, v.kind,
       regexp_replace(v.key, '#([^#]*)$', '.\1') AS property,
       CASE jsonb_typeof(v.value)
            WHEN 'object' THEN (SELECT o.key FROM jsonb_each_text(v.value) o LIMIT 1)
            WHEN 'string' THEN 'str' WHEN 'boolean' THEN 'bool' ELSE 'int' END AS value_type,
       CASE WHEN k.sensitive THEN '(hidden)'
            WHEN jsonb_typeof(v.value) = 'object' THEN (SELECT o.value FROM jsonb_each_text(v.value) o LIMIT 1)
            ELSE v.value #>> '{}' END AS value
  FROM spool s
 CROSS JOIN LATERAL (
       SELECT c.kind, e.key, e.value
         FROM (VALUES ('promoted'), ('written')) AS c (kind)
        CROSS JOIN LATERAL jsonb_each(coalesce(s.context -> c.kind, '{}')) e
        WHERE e.key NOT IN ('BTS#OriginatorSID', 'BTS#OriginatorPID')
        UNION ALL
       SELECT CASE WHEN s.context -> 'promoted' ? o.key THEN 'promoted' ELSE 'written' END, o.key, to_jsonb(o.value)
         FROM (VALUES ('BTS#OriginatorSID', coalesce(s.originator_sid, s.published_by)),
                      ('BTS#OriginatorPID', coalesce(s.originator_pid, 'Guest'))) AS o (key, value)
        UNION ALL
       SELECT 'required', r ->> 0, r -> 1
         FROM jsonb_array_elements(coalesce(s.context -> 'predicates', '[]')) r) v
  LEFT JOIN properties k ON k.key = v.key
