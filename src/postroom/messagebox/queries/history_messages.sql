-- The stored messages for the history source: one row for each message, with the origin from its context. A body of
-- more than max_body bytes is null; its size is not. Other statements select from this one. Columns that they do not
-- select are not read: parts are read only for columns of parts, and bodies only if they are selected.
-- Reads the spool by ranges of its pages (range_key), parts and fragments by their primary keys.
SELECT s.ctid AS range_key, s.message_id, s.published_at, s.published_by,
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
