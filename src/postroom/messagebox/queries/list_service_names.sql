-- The names by which instances can be selected: ports, groups, locations, orchestrations, and services that still have
-- instances.
SELECT name FROM send_ports
 UNION SELECT name FROM send_port_groups
 UNION SELECT name FROM receive_ports
 UNION SELECT name FROM receive_locations
 UNION SELECT name FROM orchestrations
 UNION SELECT name FROM removed_services
 UNION SELECT port_name FROM removed_services
 UNION SELECT service_name FROM subscriptions
