-- One message of the spool, with its authenticated originator. Index: its primary key.
SELECT context, part_ids, body_part_id, body_part_name, published_at, published_by,
       coalesce(originator_sid, published_by), coalesce(originator_pid, 'Guest')
  FROM spool WHERE message_id = %s
