-- The maps of a receive port stand with each of its locations, like their pipelines: a host reads those of its own alone,
-- and receive ports are for every host to read.

ALTER TABLE management.receive_locations ADD COLUMN maps jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}';
UPDATE management.receive_locations l SET maps = p.maps FROM management.receive_ports p WHERE p.id = l.receive_port_id;
ALTER TABLE management.receive_ports DROP COLUMN maps;
