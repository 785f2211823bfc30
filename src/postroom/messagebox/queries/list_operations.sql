-- The operations on instances with their progress, the latest first. Every condition is optional.
-- Indexes: the primary keys of both tables.
SELECT o.id, o.kind, o.target, o.requested_by, o.requested_at, o.reason, o.total, o.changed, o.hosts, o.finished_at, i.remaining,
       i.pending
  FROM management.operations o
 CROSS JOIN LATERAL (SELECT count(*) AS remaining, count(*) FILTER (WHERE pending) AS pending
                       FROM operation_instances WHERE operation_id = o.id) i
 WHERE %(id)s::bigint IS NULL OR o.id = %(id)s
 ORDER BY o.id DESC
 LIMIT %(limit)s
