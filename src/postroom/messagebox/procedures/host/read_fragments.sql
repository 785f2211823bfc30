-- Some fragments of a part of a message that this host has claimed, from a number on: a large body is never in one
-- piece, neither here nor in the host.
-- Indexes: work_queue_claimed, fragments' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_fragments___HOST__(
    p_claim_id uuid, p_message_id uuid, p_part_id uuid, p_from integer, p_count integer
) RETURNS TABLE (number integer, body bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT f.number, f.body
      FROM fragments f
     WHERE f.part_id = p_part_id AND f.number >= p_from AND f.number < p_from + p_count
       AND EXISTS (SELECT 1 FROM spool s WHERE s.message_id = p_message_id AND p_part_id = ANY (s.part_ids))
       AND EXISTS (SELECT 1 FROM __HOST___q q WHERE q.claim_id = p_claim_id AND q.message_id = p_message_id)
     ORDER BY f.number;
$$;
