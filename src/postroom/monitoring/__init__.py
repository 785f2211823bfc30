"""Monitoring of the processes of Postroom: metrics, health checks and logs."""
