-- Store an interchange in the inbox. Does nothing if it is already there. Index: primary key of inbox.
INSERT INTO inbox (interchange_id, location_id, context, size, digest, body) VALUES (%s, %s, %s, %s, %b, %b)
ON CONFLICT (interchange_id) DO NOTHING
