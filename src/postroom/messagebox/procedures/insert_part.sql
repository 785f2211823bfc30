-- Insert one part of a message. Its row counts its only reference, or none: then the references are in the ref-count
-- logs. A part in fragments has a null body, and its fragments are inserted separately.
CREATE OR REPLACE FUNCTION messagebox.insert_part(
    p_part_id uuid, p_name text, p_content_type text, p_charset text, p_size bigint, p_body bytea,
    p_only_reference boolean DEFAULT false
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO parts (part_id, name, content_type, charset, size, body, only_reference)
    VALUES (p_part_id, p_name, p_content_type, p_charset, p_size, p_body, p_only_reference);
$$;
