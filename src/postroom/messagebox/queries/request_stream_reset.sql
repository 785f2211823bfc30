-- Let the stream of a receive location start with a new checkpoint when it is next started.
-- Indexes: receive_locations by name, primary key of streams. Locks: the row.
UPDATE streams SET reset_requested = true
 WHERE location_id = (SELECT id FROM receive_locations WHERE name = %s)
