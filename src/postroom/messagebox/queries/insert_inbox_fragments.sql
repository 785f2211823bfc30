-- Insert numbered fragments of a large interchange.
INSERT INTO inbox_fragments (interchange_id, number, body)
SELECT %s, number, body FROM unnest(%s::integer[], %b::bytea[]) AS fragment (number, body)
