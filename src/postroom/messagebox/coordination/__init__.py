"""How processes know of each other: rows and locks of running processes, heartbeats, notifications."""
