-- Apply claimed messages to a lookup, and complete them. p_keys are the value keys of the messages in p_seqs. A message
-- without content (p_deletes) deletes its entry. Of the messages of a key the one with the highest number counts, in
-- whatever order they come: the numbers are the order of publishing. Returns the numbers of the messages that the claim
-- still had, and null if the lookup does not exist. Then nothing is changed.
-- Indexes: lookup_contents (service_id), lookup_entries' primary key, work_queue_claimed, those of read_content,
-- fragments' primary key.
-- Locks: the row of the lookup, before any other.
CREATE OR REPLACE FUNCTION messagebox.apply_to_lookup___HOST__(
    p_service_id uuid, p_claim_id uuid, p_seqs bigint[], p_keys text[], p_deletes boolean[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    changed lookup_contents%ROWTYPE;
    applied bigint[];
BEGIN
    SELECT * INTO changed FROM lookup_contents l WHERE l.service_id = p_service_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    applied := ARRAY(
        SELECT q.seq FROM __HOST___q q
         WHERE q.claim_id = p_claim_id AND q.seq = ANY (p_seqs) AND q.service_id = p_service_id);
    IF cardinality(applied) > 0 THEN
        INSERT INTO lookup_entries AS e (lookup_id, key, version, seq, message_id, context, originator_sid,
                                         originator_pid, part_name, content_type, charset, body)
        SELECT changed.id, n.key, changed.version + 1, n.seq, n.message_id, m.context::jsonb, m.originator_sid,
               m.originator_pid, m.body_part_name, m.content_type, m.charset,
               coalesce(m.body, (SELECT string_agg(f.body, ''::bytea ORDER BY f.number) FROM fragments f
                                  WHERE f.part_id = m.body_part_id))
          FROM (SELECT DISTINCT ON (a.key) a.key, a.seq, a.deletes, q.message_id
                  FROM unnest(p_seqs, p_keys, p_deletes) AS a (seq, key, deletes)
                  JOIN __HOST___q q ON q.seq = a.seq AND q.claim_id = p_claim_id AND q.service_id = p_service_id
                 ORDER BY a.key, a.seq DESC) n
          LEFT JOIN LATERAL read_content(n.message_id) m ON NOT n.deletes
            ON CONFLICT (lookup_id, key) DO UPDATE
           SET version = excluded.version, seq = excluded.seq, message_id = excluded.message_id, applied_at = now(),
               context = excluded.context, originator_sid = excluded.originator_sid,
               originator_pid = excluded.originator_pid, part_name = excluded.part_name,
               content_type = excluded.content_type, charset = excluded.charset, body = excluded.body
         WHERE excluded.seq > e.seq;
        UPDATE lookup_contents SET version = version + 1 WHERE id = changed.id;
        PERFORM complete_messages___HOST__(p_claim_id, applied);
    END IF;
    RETURN applied;
END $$;
