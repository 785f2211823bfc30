-- Claims a batch of new instances, as claim_orchestrations_<host> does. Used by the bare loop.
WITH taken AS (
    DELETE FROM default_q q
     WHERE q.ctid = ANY (ARRAY(
           SELECT w.ctid FROM default_q w
            WHERE w.claim_id IS NULL AND w.task <> 'deliver_in_order' AND w.service_class = 'orchestrations'
            ORDER BY w.priority, w.seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING q.*
), delivered AS (
    INSERT INTO orchestration_messages (instance_id, seq, message_id, subscription_id, enqueued_at, counted_in)
    SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM taken
)
INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, ready_seq)
SELECT instance_id, host_id, service_id, priority, now(), seq FROM taken
RETURNING instance_id
