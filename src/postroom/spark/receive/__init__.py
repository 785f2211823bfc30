"""Receive streams: claimed files and handed-over interchanges go through their pipelines into the MessageBox."""
