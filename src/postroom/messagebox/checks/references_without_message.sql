-- Queue rows whose message is not in the spool. They cannot be delivered.
SELECT 'instance ' || i.instance_id || ' refers to message ' || i.message_id
  FROM instances i
 WHERE NOT EXISTS (SELECT 1 FROM spool s WHERE s.message_id = i.message_id)
