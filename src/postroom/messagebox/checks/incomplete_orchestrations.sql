-- Orchestration instances without their first message, journals and messages without an instance, and journals that are
-- incomplete.
SELECT 'instance ' || i.instance_id || ' has no message'
  FROM orchestration_instances i
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_messages m WHERE m.instance_id = i.instance_id)
UNION ALL
SELECT DISTINCT 'message of instance ' || m.instance_id || ', which does not exist'
  FROM orchestration_messages m
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = m.instance_id)
UNION ALL
SELECT DISTINCT 'journal of instance ' || j.instance_id || ', which does not exist'
  FROM orchestration_journal j
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = j.instance_id)
UNION ALL
SELECT 'journal of instance ' || i.instance_id || ' ends at ' || max(j.number) || ', not at ' || i.journal_length
  FROM orchestration_instances i JOIN orchestration_journal j USING (instance_id)
 GROUP BY i.instance_id, i.journal_length
HAVING max(j.number) <> i.journal_length
