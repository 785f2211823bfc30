-- Messages without a reference count. No job would delete them.
SELECT 'message ' || s.message_id
  FROM spool s
 WHERE NOT EXISTS (SELECT 1 FROM message_ref_counts c WHERE c.message_id = s.message_id)
