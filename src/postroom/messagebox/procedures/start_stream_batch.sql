-- Record that a batch of a stream of rows is about to be read: the newest batch again, or a new one, which replaces the
-- units of the finished batch before it. Returns the newest batch and its number of partitions. If these differ from
-- the caller's, it must not read the batch. Returns no row if the stream has another checkpoint or a reset was
-- requested.
-- Index: primary key of streams; stream_units by location_id. Locks: the stream's row; advisory (7001, 3) shared, so
-- that no batch starts while a backup copies the checkpoints.
CREATE OR REPLACE FUNCTION messagebox.start_stream_batch(
    p_location_id uuid, p_checkpoint_id uuid, p_batch bigint, p_units uuid[]
) RETURNS TABLE (batch bigint, partitions integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    known streams;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7001, 3);
    SELECT s.* INTO known FROM streams s
     WHERE s.location_id = p_location_id AND s.checkpoint_id = p_checkpoint_id AND NOT s.reset_requested
       AND serves_location(s.location_id)
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_batch > known.batch THEN
        UPDATE streams s SET batch = p_batch, partitions = cardinality(p_units) WHERE s.location_id = p_location_id
        RETURNING s.* INTO known;
        DELETE FROM stream_units u WHERE u.location_id = p_location_id;
        INSERT INTO stream_units (unit, location_id) SELECT unnest(p_units), p_location_id;
    END IF;
    RETURN QUERY SELECT known.batch, known.partitions;
END
$$;
