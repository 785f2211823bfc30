-- Create the content of a new lookup. Index: lookup_contents (service_id).
INSERT INTO lookup_contents (service_id, key_property, key_type) VALUES (%s, %s, %s) ON CONFLICT (service_id) DO NOTHING
