"""Locations whose adapters a host polls."""
