-- The operations on instances with their progress, the latest first. Every condition is optional.
-- Indexes: the primary key of operations, operation_instances_pending.
SELECT o.id AS operation_id, o.kind, o.target, o.requested_by, o.requested_at, o.reason, o.total, o.changed, o.messages,
       o.hosts, o.finished_at, o.remaining,
       (SELECT count(*) FROM operation_instances i WHERE i.operation_id = o.id AND i.pending) AS pending
  FROM messagebox.operations o
 WHERE %(id)s::bigint IS NULL OR o.id = %(id)s
 ORDER BY o.id DESC
 LIMIT %(limit)s
