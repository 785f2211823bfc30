-- Predicate groups with missing or additional predicates. They would match other messages than their filter.
SELECT 'group ' || g.number || ' of subscription ' || g.subscription_id || ', ' || coalesce(q.found, 0) || ' of '
       || g.predicate_count || ' predicates'
  FROM predicate_groups g
  LEFT JOIN (SELECT group_id, count(*) AS found FROM predicates GROUP BY group_id) q ON q.group_id = g.id
 WHERE coalesce(q.found, 0) <> g.predicate_count
