-- Failed-message routing, per port: what would be suspended is published instead, as an error message (FMR-01).

ALTER TABLE management.receive_ports ADD COLUMN route_failures boolean NOT NULL DEFAULT false;
ALTER TABLE management.send_ports ADD COLUMN route_failures boolean NOT NULL DEFAULT false;

-- In its place is report_of, which says which report it is.
DROP FUNCTION IF EXISTS messagebox.has_report(uuid);
