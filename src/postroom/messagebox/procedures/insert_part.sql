-- Insert one of the remaining parts of a message. Its references are counted in the logs.
CREATE OR REPLACE FUNCTION messagebox.insert_part(
    p_part_id uuid, p_name text, p_content_type text, p_charset text, p_size bigint, p_body bytea
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT messagebox.int_insert_part(p_part_id, p_name, p_content_type, p_charset, p_size, p_body, false);
$$;
