-- The contexts and originators of messages, in any order. Deleted messages are left out.
-- Index: the spool's primary key.
SELECT message_id, published_at, context, coalesce(originator_sid, published_by), coalesce(originator_pid, 'Guest')
  FROM spool WHERE message_id = ANY (%s)
