-- The contexts of some messages, and who they are from, in no order. A message that was deleted meanwhile is left out.
-- Index: the spool's primary key.
SELECT message_id, published_at, context, coalesce(originator_sid, published_by), coalesce(originator_pid, 'Guest')
  FROM spool WHERE message_id = ANY (%s)
