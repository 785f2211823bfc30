-- Insert one promoted value of one message of the batch that is being published. A property that is not deployed is
-- skipped, because nothing can be routed by it.
INSERT INTO message_properties (batch_id, message_id, property_id, value_text, value_int, value_decimal, value_float)
SELECT %s, %s, id, %s::text, %s::bigint, %s::numeric, %s::double precision FROM properties WHERE key = %s
