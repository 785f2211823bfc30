"""Sinks: send ports that Spark drains in batches, instead of hosts one message at a time."""
