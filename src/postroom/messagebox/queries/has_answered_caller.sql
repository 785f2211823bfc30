-- Whether a message that a send port has suspended is a request whose caller got the failure as its answer (RR-11): the
-- port is two-way, and the message has a token. Index: the primary keys.
SELECT EXISTS (
    SELECT 1
      FROM spool s CROSS JOIN send_ports p
     WHERE s.message_id = %(message_id)s AND p.id = %(port_id)s AND p.response IS NOT NULL
       AND (s.context -> 'promoted' ->> %(token)s IS NOT NULL OR s.context -> 'written' ->> %(token)s IS NOT NULL))
