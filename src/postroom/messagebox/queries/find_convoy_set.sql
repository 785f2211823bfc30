-- The convoy set of the instances of an orchestration on a host, if it has these properties.
-- Indexes: orchestration_instances_service, convoy_set_instances_instance.
SELECT v.id
  FROM orchestration_instances i
  JOIN convoy_set_instances c ON c.instance_id = i.instance_id
  JOIN convoy_sets v ON v.id = c.convoy_set_id
 WHERE i.service_id = %s AND v.host_id = %s
   AND ARRAY(SELECT p.key FROM unnest(v.property_ids) WITH ORDINALITY o (id, number)
               JOIN properties p ON p.id = o.id ORDER BY o.number) = %s::text[]
 LIMIT 1
