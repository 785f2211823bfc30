-- The number of instances of each orchestration of an application, with the messages that wait in a queue to activate
-- one.
-- Indexes: orchestration_instances_service. The queues are read whole.
SELECT o.id, count(*)
  FROM services o
  JOIN (SELECT service_id, instance_id FROM orchestration_instances
        UNION SELECT service_id, instance_id FROM work_queue WHERE service_class = 'orchestrations'
        UNION SELECT service_id, instance_id FROM suspended_queue
               WHERE service_class = 'orchestrations' AND resumable) i
       ON i.service_id = o.id
 WHERE o.kind = 'orchestration' AND o.application = %s
 GROUP BY o.id
