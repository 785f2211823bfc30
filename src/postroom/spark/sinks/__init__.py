"""Sinks: send ports that a writer of Spark drains, a batch at a time."""
