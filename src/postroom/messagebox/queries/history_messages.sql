-- The messages that are stored, for those who look back: one row each, with what its context says of where it came from.
-- A body of more than max_body bytes is null; its size tells. Others select from this, and what they do not select is not
-- read: parts are looked up only for their own columns, and bodies only where they are asked for.
-- Reads the spool by ranges of its pages (place), parts and fragments by their primary keys.
SELECT s.ctid AS place, s.message_id, s.published_at, s.published_by,
       coalesce(s.originator_sid, s.published_by) AS originator, coalesce(s.originator_pid, 'Guest') AS party,
       coalesce(s.context #>> '{promoted,BTS#MessageType}', s.context #>> '{written,BTS#MessageType}') AS message_type,
       coalesce(s.context #>> '{promoted,BTS#InterchangeID}', s.context #>> '{written,BTS#InterchangeID}')
           AS interchange_id,
       coalesce(s.context #>> '{promoted,BTS#ReceivePortName}', s.context #>> '{written,BTS#ReceivePortName}')
           AS receive_port,
       cardinality(s.part_ids) AS parts, p.content_type, p.charset, p.size,
       CASE WHEN p.size <= %(max_body)s THEN coalesce(p.body, (
           SELECT string_agg(f.body, ''::bytea ORDER BY f.number) FROM fragments f WHERE f.part_id = p.part_id))
       END AS body
  FROM spool s
  LEFT JOIN parts p ON p.part_id = s.body_part_id
