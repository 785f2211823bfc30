-- Messages with a positive reference count that are in no queue. They would never be deleted.
SELECT 'message ' || c.message_id || ', ' || c.total || ' counted'
  FROM message_ref_counts c
 WHERE c.total > 0 AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.message_id = c.message_id)
