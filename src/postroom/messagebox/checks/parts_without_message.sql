-- Parts that belong to no message and that no job would delete. A part whose references are all released is excluded:
-- it waits for its cleanup.
SELECT 'part ' || p.part_id
  FROM parts p
 WHERE NOT EXISTS (SELECT 1 FROM (SELECT unnest(part_ids) AS part_id FROM spool) s WHERE s.part_id = p.part_id)
   AND NOT EXISTS (SELECT 1 FROM part_ref_counts c WHERE c.part_id = p.part_id)
