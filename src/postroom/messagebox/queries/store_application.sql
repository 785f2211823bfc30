-- Store what an application says about properties and hosts. Index: applications by name.
INSERT INTO applications (name, properties, hosts) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET properties = excluded.properties, hosts = excluded.hosts, applied_at = now()
RETURNING id
