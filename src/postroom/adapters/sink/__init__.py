"""Sinks: send ports that Spark drains in batches. Hosts do not serve them."""
