-- find_subscriptions with the data of each subscriber that a publisher needs, and a flag that its host may receive the
-- message: every message predicate is among the application properties of the host.
-- Indexes: message_predicates' and application_properties' primary keys.
SELECT f.message_id,
       NOT EXISTS (SELECT 1 FROM message_predicates m
                    WHERE m.batch_id = %(batch)s AND m.message_id = f.message_id
                      AND NOT EXISTS (SELECT 1 FROM application_properties a
                                       WHERE a.host_id = s.host_id AND a.property_key = m.property_key
                                         AND a.value = m.value)),
       h.name, s.id, s.host_id, s.service_class, s.service_id, s.service_name, s.priority, s.state, s.ordered,
       s.instance_id, s.convoy_set_id, s.group_id, s.group_name, s.for_host_instance
  FROM find_subscriptions(%(batch)s) f
  JOIN subscriptions s ON s.id = f.subscription_id
  JOIN hosts h ON h.id = s.host_id
 ORDER BY s.id
