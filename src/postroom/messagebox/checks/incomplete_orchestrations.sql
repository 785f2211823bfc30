-- Orchestration instances without their first message or their orchestration, journals and messages without an
-- instance, and journals that are incomplete or refer to messages that the instance does not have.
SELECT 'instance ' || i.instance_id || ' has no message'
  FROM orchestration_instances i
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_messages m WHERE m.instance_id = i.instance_id)
UNION ALL
SELECT 'instance ' || i.instance_id || ' of an orchestration that does not exist'
  FROM orchestration_instances i
 WHERE NOT EXISTS (SELECT 1 FROM services o WHERE o.id = i.service_id AND o.kind = 'orchestration')
UNION ALL
SELECT DISTINCT 'message of instance ' || m.instance_id || ', which does not exist'
  FROM orchestration_messages m
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = m.instance_id)
UNION ALL
SELECT 'instance ' || i.instance_id || ' has received message ' || m.message_id || ' after the end of its journal'
  FROM orchestration_instances i JOIN orchestration_messages m USING (instance_id)
 WHERE m.consumed_in > i.journal_length
UNION ALL
SELECT DISTINCT 'journal of instance ' || j.instance_id || ', which does not exist'
  FROM orchestration_journal j
 WHERE NOT EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = j.instance_id)
UNION ALL
SELECT 'journal of instance ' || i.instance_id || ' ends at ' || coalesce(j.last, 0) || ', not at ' || i.journal_length
  FROM orchestration_instances i
  LEFT JOIN (SELECT instance_id, max(number) AS last FROM orchestration_journal GROUP BY 1) j USING (instance_id)
 -- A fresh journal is empty, and its entries are numbered on.
 WHERE j.last <> i.journal_length OR (j.last IS NULL AND i.journals = 0 AND i.journal_length > 0)
UNION ALL
SELECT 'journal of instance ' || j.instance_id || ' has ' || count(*) || ' of its entries up to ' || max(j.number)
  FROM orchestration_journal j JOIN orchestration_instances i USING (instance_id)
 GROUP BY j.instance_id, i.journals
HAVING count(*) <> max(j.number) - CASE WHEN i.journals = 0 THEN 0 ELSE min(j.number) - 1 END
UNION ALL
SELECT 'journal of instance ' || j.instance_id || ' refers to message ' || t.message
           || ', which the instance does not have'
  FROM orchestration_journal j
 CROSS JOIN LATERAL (SELECT turn -> 'event' ->> 'message' AS message FROM json_array_elements(j.turns) turn) t
 WHERE t.message IS NOT NULL
   AND EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = j.instance_id)
   AND NOT EXISTS (SELECT 1 FROM orchestration_messages m
                    WHERE m.instance_id = j.instance_id AND m.message_id = t.message::uuid
                      AND m.consumed_in IS NOT NULL)
