-- Give a fault (NACK) to the callers of requests that instances of orchestrations have and will not answer, or not
-- soon (ACK-01, RR-11): a program, a two-way receive location or another instance. Each gets it once, and nobody else
-- does. A caller that is gone gets none. A two-way location that waits for a late answer, because the request has an
-- idempotency key, gets another one later: for the clients that repeat the request. With p_may_answer the instance may
-- answer when it is resumed. p_what says what has happened to it, after its name.
-- Indexes: the primary keys of spool, services and orchestration_messages, subscriptions_correlation; by the settings,
-- whatever statistics there are. Locks: advisory (7001, 0) shared, the instance subscriptions of the callers, then as
-- insert_message. The caller of this function has locked the instances.
CREATE OR REPLACE FUNCTION messagebox.int_fault_requests(
    p_instance_ids uuid[], p_service_ids uuid[], p_message_ids uuid[], p_may_answer boolean, p_what text
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    max_length CONSTANT integer := 1000;                 -- of the description
    may_answer_code CONSTANT text := '0xe000000b';       -- FAILURE_CODES (agent/error_messages.py)
    ended_code CONSTANT text := '0xe0000000';
    request record;
    waiting record;
    routing_version bigint;
    woken smallint[] := '{}';
BEGIN
    FOR request IN
        SELECT f.instance_id, f.message_id, v.name, s.context, reply_address(s.context) AS address,
               EXISTS (SELECT 1 FROM orchestration_messages m
                        WHERE m.instance_id = f.instance_id AND m.message_id = f.message_id AND m.faulted) AS faulted
          FROM unnest(p_instance_ids, p_service_ids, p_message_ids) AS f (instance_id, service_id, message_id)
          JOIN services v ON v.id = f.service_id
          JOIN spool s ON s.message_id = f.message_id
         WHERE reply_address(s.context) IS NOT NULL
         ORDER BY f.instance_id, f.message_id
    LOOP
        routing_version := coalesce(routing_version, (SELECT r.version FROM lock_routing() r));
        SELECT s.id, s.host_id, s.priority INTO waiting
          FROM (SELECT array_agg(p.id ORDER BY p.id) AS property_ids,
                       array_agg(CASE a.value WHEN 'true' THEN '1' ELSE a.value END ORDER BY p.id) AS wanted
                  FROM jsonb_each_text(request.address) a JOIN properties p ON p.key = a.key) w
          JOIN correlation_types t ON t.property_ids = w.property_ids
          JOIN subscriptions s ON s.correlation_hash = correlation_hash(t.id, w.wanted)
           AND s.correlation_type_id = t.id AND s.correlation_values = w.wanted
         WHERE s.instance_id <> request.instance_id AND s.removed_at IS NULL
           AND (s.kept_until IS NOT NULL OR NOT request.faulted)
         LIMIT 1 FOR KEY SHARE OF s;
        CONTINUE WHEN NOT FOUND;
        PERFORM insert_message(
            routing_version, gen_random_uuid(),
            jsonb_build_object(
                'promoted', request.address || jsonb_build_object('BTS#AckType', 'NACK'),
                'written', jsonb_build_object(
                    'BTS#AckID', request.message_id, 'BTS#AckOwnerID', request.instance_id,
                    'BTS#AckFailureCode', CASE WHEN p_may_answer THEN may_answer_code ELSE ended_code END,
                    'BTS#AckFailureCategory', 0,
                    'BTS#AckDescription',
                    left(format('The orchestration %L %s', request.name, p_what), max_length))
                || jsonb_strip_nulls(jsonb_build_object(
                    'BTS#InterchangeID', request.context -> 'written' -> 'BTS#InterchangeID'))),
            ARRAY[waiting.id], ARRAY[gen_random_uuid()], ARRAY[waiting.priority], '{}', NULL, NULL, NULL, NULL, NULL,
            NULL);
        woken := woken || waiting.host_id;
    END LOOP;
    UPDATE orchestration_messages m SET faulted = true
      FROM unnest(p_instance_ids, p_message_ids) AS f (instance_id, message_id)
     WHERE m.instance_id = f.instance_id AND m.message_id = f.message_id AND NOT m.faulted;
    PERFORM pg_notify('postroom_' || lower(h.name), '') FROM hosts h WHERE h.id = ANY (woken);
END $$;
