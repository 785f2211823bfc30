-- Store an operation on the instances that the query list_instances finds, the oldest first. Reads the queues whole.
SELECT start_operation(%(kind)s, %(target)s,
                       ARRAY(SELECT chosen.instance_id FROM (__INSTANCES__) AS chosen (instance_id)),
                       %(first_only)s)
