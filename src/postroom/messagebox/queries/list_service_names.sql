-- The names by which instances can be selected: ports, groups, locations, orchestrations, and services that still have
-- instances.
SELECT name FROM services
 UNION SELECT port_name FROM services
 UNION SELECT service_name FROM subscriptions
