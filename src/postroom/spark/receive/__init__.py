"""Receive streams: publish claimed files and the rows of the inbox through their pipelines."""
