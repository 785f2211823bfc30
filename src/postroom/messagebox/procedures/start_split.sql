-- Start to read a split of a claimed file. Starting it again changes nothing. Returns false if the file must not be
-- read any more: it is finished and the task was abandoned, or it has too many bad rows.
-- Indexes: primary keys of file_claims and splits. Locks the file claim's key against its deletion.
CREATE OR REPLACE FUNCTION messagebox.start_split(p_unit uuid, p_interchange_id uuid, p_start bigint, p_length bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM 1 FROM file_claims c
      WHERE c.interchange_id = p_interchange_id AND c.state = 2 AND serves_location(c.location_id) FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO splits (unit, interchange_id, start, length)
    VALUES (p_unit, p_interchange_id, p_start, p_length) ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
