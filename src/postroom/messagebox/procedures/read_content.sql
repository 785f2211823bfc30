-- Return the context, the body part and the originator of a message, in the columns in which the procedures that return
-- claimed messages have them. The originator is what a trusted host has set, or else the login that published the
-- message, and Guest. No row if the message is missing. It has no settings, so that PostgreSQL inlines it into a join
-- (LEFT JOIN LATERAL).
-- Indexes: the primary keys of spool and parts.
CREATE OR REPLACE FUNCTION messagebox.read_content(p_message_id uuid) RETURNS TABLE (
    context text, part_count integer, body_part_id uuid, body_part_name text, content_type text, charset text,
    body bytea, originator_sid text, originator_pid text)
LANGUAGE sql STABLE AS $$
    SELECT s.context::text, cardinality(s.part_ids), s.body_part_id, s.body_part_name, p.content_type, p.charset,
           p.body, coalesce(s.originator_sid, s.published_by), coalesce(s.originator_pid, 'Guest')
      FROM messagebox.spool s LEFT JOIN messagebox.parts p ON p.part_id = s.body_part_id
     WHERE s.message_id = p_message_id;
$$;
