-- Properties and predicates of published batches. The publishing transaction deletes them, so every visible row is a
-- violation.
SELECT 'batch ' || batch_id || ' of message properties' FROM (SELECT DISTINCT batch_id FROM message_properties) m
UNION ALL
SELECT 'batch ' || batch_id || ' of message predicates' FROM (SELECT DISTINCT batch_id FROM message_predicates) m
