-- Groups that have lost predicates, or gained some: they would match what their filter does not say.
SELECT 'group ' || g.number || ' of subscription ' || g.subscription_id || ', ' || coalesce(q.found, 0) || ' of '
       || g.predicate_count || ' predicates'
  FROM predicate_groups g
  LEFT JOIN (SELECT group_id, count(*) AS found FROM predicates GROUP BY group_id) q ON q.group_id = g.id
 WHERE coalesce(q.found, 0) <> g.predicate_count
