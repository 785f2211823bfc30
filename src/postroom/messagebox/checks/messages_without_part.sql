-- Queued messages with a missing part.
SELECT 'message ' || s.message_id || ', part ' || p.part_id
  FROM spool s
 CROSS JOIN unnest(s.part_ids) AS p (part_id)
 WHERE NOT EXISTS (SELECT 1 FROM parts q WHERE q.part_id = p.part_id)
   AND EXISTS (SELECT 1 FROM instances i WHERE i.message_id = s.message_id)
