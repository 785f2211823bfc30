-- Record the checkpoint of a stream of rows that starts, if the stream is new or a reset was requested. Returns the
-- recorded state of the stream. With p_checkpoint_id null nothing is recorded. Returns no row for a location of another
-- host.
-- Index: primary keys of streams and receive_locations; stream_units by location_id. Locks the stream's row.
CREATE OR REPLACE FUNCTION messagebox.start_stream(p_location_id uuid, p_checkpoint_id uuid)
RETURNS TABLE (checkpoint_id uuid, reset_requested boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    IF NOT serves_location(p_location_id) THEN
        RETURN;
    END IF;
    IF p_checkpoint_id IS NOT NULL THEN
        DELETE FROM streams s WHERE s.location_id = p_location_id AND s.reset_requested;
        INSERT INTO streams (location_id, checkpoint_id) VALUES (p_location_id, p_checkpoint_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT s.checkpoint_id, s.reset_requested FROM streams s WHERE s.location_id = p_location_id;
END
$$;
