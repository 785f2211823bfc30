-- The missing and quarantined files of a location, and the quarantined rows of its inbox, with their problems, by name.
-- Indexes: file_claims by location and number, inbox by location and number.
SELECT name, problem FROM file_claims WHERE location_id = %(id)s AND state IN (4, 5) AND problem IS NOT NULL
UNION ALL
SELECT interchange_id::text, problem FROM inbox WHERE location_id = %(id)s AND problem IS NOT NULL
 ORDER BY 1
