-- Resume, reroute, suspend or terminate instances. Returns those that were changed: the host that gets a resumed or
-- rerouted one, the number of terminated messages, and the message if only the first one of an ordered send port was
-- terminated. p_seqs has the number of that message for each instance, or null for all messages. Then the host of the
-- port is woken, which sends the next ones. Instances whose state does not allow it are skipped.
-- Indexes and locks: as the functions that it calls.
CREATE OR REPLACE FUNCTION messagebox.int_change_instances(
    p_kind text, p_instance_ids uuid[], p_seqs bigint[], p_now timestamptz
) RETURNS TABLE (instance_id uuid, host_id smallint, messages bigint, message_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    whole uuid[] := p_instance_ids;                      -- the instances that are changed with all their messages
    ordered record;                                      -- a send port whose first message is terminated
BEGIN
    CASE p_kind
        WHEN 'resume' THEN
            RETURN QUERY SELECT DISTINCT r.instance_id, r.host_id, 0::bigint, NULL::uuid
                           FROM resume_instances(whole, p_now) r;
        WHEN 'reroute' THEN
            RETURN QUERY SELECT DISTINCT r.instance_id, r.host_id, 0::bigint, NULL::uuid
                           FROM reroute_instances(whole, p_now) r;
        WHEN 'suspend' THEN
            RETURN QUERY SELECT DISTINCT r, NULL::smallint, 0::bigint, NULL::uuid
                           FROM suspend_instances(whole, p_now) r;
        WHEN 'terminate' THEN
            FOR ordered IN
                SELECT i.id, a.instance_id AS aside_id, a.message_id
                  FROM (SELECT u.id, u.seq FROM unnest(whole, p_seqs) AS u (id, seq)
                         WHERE u.seq IS NOT NULL ORDER BY u.id) i
                  LEFT JOIN LATERAL int_set_aside(i.id, i.seq, gen_random_uuid()) a ON true
            LOOP
                whole := array_remove(whole, ordered.id);
                IF ordered.aside_id IS NOT NULL THEN
                    PERFORM terminate_instances(ARRAY[ordered.aside_id], p_now);
                    PERFORM pg_notify('postroom_' || lower(h.name), '')
                       FROM services s JOIN hosts h ON h.id = s.host_id WHERE s.id = ordered.id;
                    RETURN QUERY SELECT ordered.id, NULL::smallint, 1::bigint, ordered.message_id;
                END IF;
            END LOOP;
            RETURN QUERY SELECT r, NULL::smallint, count(*), NULL::uuid FROM terminate_instances(whole, p_now) r
                          GROUP BY r;
    END CASE;
END $$;
