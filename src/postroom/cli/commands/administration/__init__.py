"""Commands for roles, audit, housekeeping jobs, backups and versions."""
