"""Receiving: what adapters take in, the receive task, and the locations that are served. Without PySpark."""
