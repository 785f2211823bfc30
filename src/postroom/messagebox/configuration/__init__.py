"""The deployed configuration, as PostgreSQL stores it: hosts, receive locations, send ports, groups."""
