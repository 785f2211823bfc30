-- The maps of ports, with the files that they need: for messages after the receive pipeline, and before the send adapter.

ALTER TABLE management.receive_ports ADD COLUMN maps jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}';
ALTER TABLE management.send_ports ADD COLUMN maps jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}';
