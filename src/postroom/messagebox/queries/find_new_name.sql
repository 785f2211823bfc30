-- The name that a send port or location with this name was given last, from the audit of the deployments.
-- Reads the audit whole; only after a name was not found.
SELECT a.after -> e.key ->> 'name'
  FROM management.audit a, jsonb_each(a.before) e
 WHERE a.action = 'application.apply' AND e.value ->> 'name' = %(name)s
 ORDER BY a.id DESC
 LIMIT 1
