-- Hand over an interchange; nothing happens if it was handed over before. Index: primary key of inbox.
INSERT INTO inbox (interchange_id, location_id, context, size, body) VALUES (%s, %s, %s, %s, %b)
ON CONFLICT (interchange_id) DO NOTHING
