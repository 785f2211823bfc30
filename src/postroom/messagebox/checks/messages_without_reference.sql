-- Messages that no queue refers to although somebody is counted: they would never be deleted.
SELECT 'message ' || c.message_id || ', ' || c.total || ' counted'
  FROM message_ref_counts c
 WHERE c.total > 0 AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.message_id = c.message_id)
