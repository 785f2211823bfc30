-- Those of some subscriptions to which a message of a service was not routed yet: they were created after the message
-- got its number. Of the service itself it is the subscription that this copy of the message is for: that of the same
-- send port group, or that of its own filter.
-- Index: the primary key of subscriptions.
SELECT id
  FROM subscriptions
 WHERE id = ANY (%(ids)s)
   AND CASE WHEN service_id = %(service)s THEN group_name IS NOT DISTINCT FROM %(group)s::text
            ELSE first_seq > %(seq)s END
