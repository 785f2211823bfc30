"""The deployed configuration, as PostgreSQL stores it: hosts, handlers, receive locations, send ports, groups."""
