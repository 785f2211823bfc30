-- Take back the id of the send port or receive location that an application removed last under this name.
-- Reads the removed services whole; there are few.
DELETE FROM removed_services
 WHERE id = (SELECT id FROM removed_services
              WHERE kind = %(kind)s AND application = %(application)s AND name = %(name)s
              ORDER BY removed_at DESC LIMIT 1)
RETURNING id
