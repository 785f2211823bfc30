-- A sample of the instances of an orchestration that have a journal, in an order that has no meaning and stays the
-- same, and how many there are. Instances whose journal does not fit the code that is deployed are left out.
-- Index: orchestration_instances_service.
SELECT instance_id, count(*) OVER () AS instances
  FROM orchestration_instances
 WHERE service_id = %s AND journal_length > 0 AND error_code IS DISTINCT FROM 'JOURNAL'
 ORDER BY uuid_hash(instance_id), instance_id
 LIMIT %s
