-- The send ports and send port groups that a logical port can be bound to. Reads services whole.
SELECT s.name, s.id, s.kind = 'send port group' AS is_group, s.two_way, s.state
  FROM services s
 WHERE s.kind IN ('send port', 'send port group') AND s.removed_at IS NULL
 ORDER BY 1
