-- Insert one message predicate of one message of the batch that is being published. A repeated predicate changes
-- nothing.
INSERT INTO message_predicates (batch_id, message_id, property_key, value) VALUES (%s, %s, %s, %s)
ON CONFLICT DO NOTHING
