-- One part. A content in fragments comes with a null body; its fragments are inserted beside.
CREATE OR REPLACE FUNCTION messagebox.int_insert_part(
    p_part_id uuid, p_name text, p_content_type text, p_charset text, p_size bigint, p_body bytea
) RETURNS void
LANGUAGE sql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO parts (part_id, name, content_type, charset, size, body)
    VALUES (p_part_id, p_name, p_content_type, p_charset, p_size, p_body);
$$;
