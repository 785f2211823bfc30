"""Commands for hosts, pipeline processes and the embedded PostgreSQL."""
