-- Remove a send port, receive location or orchestration from the MessageBox. Its row keeps the name, because its
-- instances refer to the id, and what is still to be done with them. With it go the circuit breakers of a port, and the
-- stream and the attempts of a location. So do the file claims of missing files and of published files in the folder
-- kept/: nothing is left to do for these. Any other file claim, and any row in the inbox, makes this statement fail.
-- Indexes: the primary keys of services, open_circuits and streams; file_claims, inbox and receive_attempts by
-- location. Locks: the rows.
WITH circuits AS (DELETE FROM open_circuits WHERE port_id = %(id)s),
     finished AS (DELETE FROM file_claims
                   WHERE location_id = %(id)s AND (state = 4 OR state = 3 AND path ~ '/kept/[^/]*$')),
     stream AS (DELETE FROM streams WHERE location_id = %(id)s),
     attempts AS (DELETE FROM receive_attempts WHERE location_id = %(id)s)
UPDATE services
   SET removed_at = now(), backlog = %(backlog)s, host_id = NULL, former_host_ids = '{}'
 WHERE id = %(id)s
