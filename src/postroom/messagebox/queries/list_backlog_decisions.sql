-- The removed send ports and receive locations of an application whose instances are still to be rerouted or
-- terminated.
-- Reads the removed services whole; there are few.
SELECT id, kind, name, backlog
  FROM removed_services
 WHERE application = %s AND backlog <> 'keep'
 ORDER BY removed_at, name
