-- One promoted value of one message of the batch that is being published. A property that is not deployed cannot be
-- routed by and is left out.
INSERT INTO message_properties (batch_id, message_id, property_id, value_text, value_int, value_decimal, value_float)
SELECT %s, %s, id, %s::text, %s::bigint, %s::numeric, %s::double precision FROM properties WHERE key = %s
