-- Store new interchanges of one location in the inbox. Their ids are random. Index: primary key of inbox.
INSERT INTO inbox (interchange_id, location_id, context, size, body)
SELECT id, %s::uuid, context::jsonb, octet_length(body), body
  FROM unnest(%b::uuid[], %b::text[], %b::bytea[]) AS new (id, context, body)
