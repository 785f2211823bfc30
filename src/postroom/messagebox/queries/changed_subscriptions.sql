-- What an index in memory has to learn: the subscriptions that changed after its version, removed ones among them.
-- Index: subscriptions_version. Instance subscriptions are found inside the publish transaction, not by an index.
SELECT id, host_id, service_class, service_id, service_name, priority, state, instance_id, convoy_set_id, group_id,
       group_name, removed_at IS NOT NULL
  FROM subscriptions
 WHERE version > %s AND instance_id IS NULL
 ORDER BY version, id
