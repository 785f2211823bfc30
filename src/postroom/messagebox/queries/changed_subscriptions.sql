-- The subscriptions that changed after a version, including removed ones, for the index in memory.
-- Index: subscriptions_version. Instance subscriptions are found inside the publish transaction, not by the index in
-- memory.
SELECT id, host_id, service_class, service_id, service_name, priority, state, ordered, instance_id, convoy_set_id,
       group_id, group_name, for_host_instance, removed_at IS NOT NULL
  FROM subscriptions
 WHERE version > %s AND instance_id IS NULL
 ORDER BY version, id
