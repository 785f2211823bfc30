-- Rows have left the queues for good: release their messages. Returns how many. The caller has just deleted them from a
-- queue, so that nothing is released twice. Rows that a host has processed leave by complete_messages, and those of a
-- sink by complete_sink_batch: a message takes a fifth less time there if its row is no queue_row in between.
CREATE OR REPLACE FUNCTION messagebox.int_finish(p_rows messagebox.queue_row[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    finished record;
BEGIN
    IF p_rows IS NULL THEN
        RETURN 0;
    END IF;
    SELECT array_agg(r.message_id) AS ids, array_agg(r.counted_in) AS counts INTO finished FROM unnest(p_rows) r;
    PERFORM int_release(finished.ids, finished.counts);
    RETURN cardinality(finished.ids);
END $$;
