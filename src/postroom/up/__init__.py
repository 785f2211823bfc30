"""`postroom up`: deploy an application, and supervise the database, the pipelines and the hosts that run it."""
