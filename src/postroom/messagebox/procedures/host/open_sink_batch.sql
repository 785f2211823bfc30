-- Return the batch that a sink of this host must write next: an unwritten one with the next attempt number, or a new
-- one of up to p_limit waiting messages, best priority and lowest number first. From its commit on the batch is fixed:
-- its messages are claimed by its id, and only the process with its latest attempt number can end it. No row if nothing
-- waits. Returns for each message its number and its attempts, by number, and the definition of the sink when the batch
-- was created: p_sink, which is '{}' if the port was removed by then.
-- Index: sink_batches_port, work_queue_sinks, work_queue_claimed; see dequeue_messages for the settings.
-- Locks: the batch, or the claimed rows, until commit. It waits for an operator who changes one of the rows, and leaves
-- it out.
CREATE OR REPLACE FUNCTION messagebox.open_sink_batch___HOST__(
    p_port_id uuid, p_batch_id uuid, p_limit integer, p_sink jsonb, p_now timestamptz DEFAULT now()
) RETURNS TABLE (batch_id uuid, number bigint, attempt integer, sink jsonb, seqs bigint[], tries integer[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    opened sink_batches;
BEGIN
    UPDATE sink_batches b SET attempt = b.attempt + 1
     WHERE b.host_id = __HOST_ID__ AND b.port_id = p_port_id AND NOT b.written
    RETURNING b.* INTO opened;
    IF NOT FOUND THEN
        UPDATE __HOST___q q SET claim_id = p_batch_id, claimed_by = NULL
         WHERE q.claim_id IS NULL AND q.ctid = ANY (ARRAY(
               SELECT w.ctid FROM __HOST___q w
                WHERE w.claim_id IS NULL AND w.service_class = 'spark_sinks' AND w.service_id = p_port_id
                ORDER BY w.priority, w.seq LIMIT p_limit));
        IF NOT FOUND THEN
            RETURN;
        END IF;
        INSERT INTO sink_batches (batch_id, host_id, port_id, sink, opened_at)
        VALUES (p_batch_id, __HOST_ID__, p_port_id, p_sink, p_now)
        RETURNING * INTO opened;
    END IF;
    RETURN QUERY
    SELECT opened.batch_id, opened.number, opened.attempt, opened.sink, coalesce(array_agg(m.seq), '{}'),
           coalesce(array_agg(m.attempt), '{}')
      FROM (SELECT q.seq, q.attempt FROM __HOST___q q WHERE q.claim_id = opened.batch_id ORDER BY q.seq) m;
END $$;
