-- The states of these services, and the activation subscription of each: null if it is bound, for a send port group,
-- and for an older version of an orchestration.
-- Indexes: the primary key of services, subscriptions_of_service.
SELECT s.id, s.state, a.id
  FROM services s
  LEFT JOIN subscriptions a ON a.service_id = s.id AND a.instance_id IS NULL AND a.group_id IS NULL
                           AND a.removed_at IS NULL
 WHERE s.id = ANY (%s)
