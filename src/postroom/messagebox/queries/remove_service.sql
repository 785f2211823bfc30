-- Keep the name and the id of a send port or receive location that is removed. Its instances refer to the id.
INSERT INTO removed_services (id, kind, application, name, port_name, two_way, backlog)
VALUES (%(id)s, %(kind)s, %(application)s, %(name)s, %(port_name)s, %(two_way)s, %(backlog)s)
