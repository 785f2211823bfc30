-- Take over a request with an idempotency key: its response is routed to another instance. A response that has come
-- already is moved. The request of a caller is taken over from a host instance that has ended, by host instance
-- p_host_instance, which holds it until p_kept_for has passed. The request of a program is taken over by the queue
-- p_service_id of another program; the first program reads the response when the other one has stored it. Returns false
-- if the request does not wait any more, or a living host instance holds it. The receipt keeps the programs from which
-- the request was taken over, in order, for leave_request.
-- The subscription is replaced and not changed, so that a publish that has found it matches again.
-- Indexes: primary keys of receipts and host_instances, subscriptions_instance, work_queue_instance. Locks: the receipt
-- (FOR NO KEY UPDATE: one caller takes over), the subscription (FOR UPDATE: waits for publishes that have found it),
-- the queue rows. The host instance that was declared dead may complete the response at the same time, and locks in the
-- other order; transaction() repeats one of them after a deadlock (40P01).
CREATE OR REPLACE FUNCTION messagebox.take_over_request___HOST__(
    p_unit uuid, p_instance_id uuid, p_host_instance integer, p_kept_for interval, p_service_id uuid,
    p_service_name text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    the_instance uuid;
    the_subscription bigint;
    the_new_subscription bigint;
BEGIN
    SELECT (r.outcome->>'instance_id')::uuid INTO the_instance
      FROM receipts r WHERE r.unit = p_unit AND r.chunk = 0 FOR NO KEY UPDATE;
    SELECT s.id INTO the_subscription
      FROM subscriptions s
     WHERE s.instance_id = the_instance AND s.host_id = __HOST_ID__ AND s.removed_at IS NULL
       AND CASE WHEN p_service_id IS NOT NULL THEN s.service_class = 'programs'
                ELSE s.kept_until IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = s.for_host_instance)
                     AND EXISTS (SELECT 1 FROM host_instances i WHERE i.id = p_host_instance)
           END
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, filter, priority, instance_id, state,
                               ordered, request_response, correlation_type_id, correlation_values, correlation_hash,
                               first_seq, for_host_instance, kept_until)
    SELECT s.host_id, s.service_class, coalesce(p_service_id, s.service_id), coalesce(p_service_name, s.service_name),
           s.filter, s.priority, p_instance_id, s.state, s.ordered, s.request_response,
           s.correlation_type_id, s.correlation_values, s.correlation_hash, s.first_seq, p_host_instance,
           clock_timestamp() + p_kept_for
      FROM subscriptions s WHERE s.id = the_subscription
    RETURNING id INTO the_new_subscription;
    UPDATE subscriptions SET removed_at = now() WHERE id = the_subscription;
    UPDATE __HOST___q q
       SET instance_id = p_instance_id, subscription_id = the_new_subscription, for_host_instance = p_host_instance,
           service_id = coalesce(p_service_id, q.service_id),
           -- The program that has received the response and not completed it loses its claim.
           claim_id = CASE WHEN p_service_id IS NULL THEN q.claim_id END,
           claimed_by = CASE WHEN p_service_id IS NULL THEN q.claimed_by END
     WHERE q.instance_id = the_instance AND q.task = 'join_instance';
    UPDATE receipts r
       SET outcome = r.outcome || jsonb_build_object('instance_id', p_instance_id)
           || CASE WHEN p_service_id IS NULL THEN '{}' ELSE jsonb_build_object('earlier',
              coalesce(r.outcome->'earlier', '[]') || (
                  SELECT jsonb_build_object('instance_id', s.instance_id, 'service_id', s.service_id,
                                            'service_name', s.service_name)
                    FROM subscriptions s WHERE s.id = the_subscription)) END
     WHERE r.unit = p_unit AND r.chunk = 0;
    PERFORM pg_notify('postroom_' || lower('__HOST__'), '');
    RETURN true;
END $$;
