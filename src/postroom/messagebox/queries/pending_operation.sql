-- The kind of the operation that is pending for an instance. Index: operation_instances_pending.
SELECT o.kind
  FROM operation_instances i
  JOIN messagebox.operations o ON o.id = i.operation_id
 WHERE i.instance_id = %s AND i.pending
