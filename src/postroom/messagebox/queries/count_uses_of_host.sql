-- What belongs to a host, with the number of each: the host can be removed when all are zero.
SELECT CASE kind WHEN 'location' THEN 'receive location' ELSE kind END, count(*)
  FROM services WHERE %(host)s = ANY (former_host_ids || host_id) GROUP BY kind
UNION ALL
SELECT 'subscription', count(*) FROM subscriptions WHERE host_id = %(host)s AND removed_at IS NULL
UNION ALL
SELECT 'program', count(*) FROM program_subscriptions WHERE host_id = %(host)s
UNION ALL
SELECT 'queued message', count(*) FROM instances WHERE host_id = %(host)s
UNION ALL
SELECT 'running process', count(*) FROM host_instances
 WHERE host_id = %(host)s AND EXISTS (SELECT 1 FROM pg_locks l
                                       WHERE l.locktype = 'advisory' AND l.classid = 7002
                                         AND l.objid = host_instances.id)
