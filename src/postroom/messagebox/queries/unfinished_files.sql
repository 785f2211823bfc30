-- Per receive location: how many files it has taken out of its folder and not yet published.
SELECT l.name, count(*)
  FROM claims c
  JOIN receive_locations l ON l.id = c.location_id
 WHERE c.state IN (1, 2)
 GROUP BY l.name
