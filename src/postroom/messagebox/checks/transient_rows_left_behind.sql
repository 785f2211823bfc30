-- Properties and predicates of a batch never survive the transaction that publishes it: whatever is seen was left behind.
SELECT 'batch ' || batch_id || ' of message properties' FROM (SELECT DISTINCT batch_id FROM message_properties) m
UNION ALL
SELECT 'batch ' || batch_id || ' of message predicates' FROM (SELECT DISTINCT batch_id FROM message_predicates) m
