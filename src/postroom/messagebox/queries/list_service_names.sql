-- Every name that instances can be asked for by: of ports, of groups, of locations, and of services that instances are left of.
SELECT name FROM send_ports
 UNION SELECT name FROM send_port_groups
 UNION SELECT name FROM receive_ports
 UNION SELECT name FROM receive_locations
 UNION SELECT service_name FROM subscriptions
