-- The ids of the messages in the spool, newest first. Only ids, so that little data is sorted.
-- Reads all rows of the spool.
SELECT message_id
  FROM spool
 ORDER BY published_at DESC, message_id
 LIMIT %(limit)s
