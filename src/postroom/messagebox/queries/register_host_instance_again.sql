-- Register a host instance under the number that it had before. Returns true if its row was gone: it was declared dead.
-- Index: the primary key of host_instances.
INSERT INTO messagebox.host_instances (id, host_id, server, pid) OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET dead_since = NULL
RETURNING xmax = 0
