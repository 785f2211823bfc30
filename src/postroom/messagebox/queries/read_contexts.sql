-- The contexts of some messages, in no order. A message that was deleted meanwhile is left out.
-- Index: the spool's primary key.
SELECT message_id, published_at, context FROM spool WHERE message_id = ANY (%s)
