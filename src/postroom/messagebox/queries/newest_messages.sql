-- The ids of the messages in the spool, the latest first. Only ids, so that what has to be sorted is small.
-- Reads the spool whole.
SELECT message_id
  FROM spool
 ORDER BY published_at DESC, message_id
 LIMIT %(limit)s
