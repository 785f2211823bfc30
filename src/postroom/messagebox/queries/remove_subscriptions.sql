-- Remove the activation subscriptions of a service (null: of all), its own and those through send port groups, or only
-- those through a group. Their queued messages stay queued (SUB-21).
-- Indexes: subscriptions_of_service, subscriptions_group. Locks: changes the routing (advisory (7001, 0) exclusive).
SELECT remove_subscription(a.id)
  FROM subscriptions a
 WHERE (a.service_id = %(service_id)s OR %(service_id)s::uuid IS NULL)
   AND (a.group_id = %(group_id)s OR %(group_id)s::uuid IS NULL)
   AND a.instance_id IS NULL AND a.removed_at IS NULL
