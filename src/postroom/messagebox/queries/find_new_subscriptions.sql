-- Those of some subscriptions to which a message of a service was not routed yet: they were created after the message got
-- its number, or belong to the service itself.
-- Index: the primary key of subscriptions.
SELECT id
  FROM subscriptions
 WHERE id = ANY (%(ids)s) AND (first_seq > %(seq)s OR service_id = %(service)s)
