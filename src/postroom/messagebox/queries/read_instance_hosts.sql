-- The hosts on which some orchestrations have instances. Index: orchestration_instances_service.
SELECT DISTINCT service_id, host_id FROM orchestration_instances WHERE service_id = ANY (%s)
