-- The deployed orchestrations, all or those of a host.
SELECT o.id AS service_id, o.application_id, o.host_id, o.definition, o.is_newest
  FROM management.orchestrations o
 WHERE %(host_id)s::smallint IS NULL OR o.host_id = %(host_id)s
 ORDER BY o.name, o.version
