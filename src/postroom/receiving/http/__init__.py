"""Requests of HTTP clients as interchanges: they are stored in the inbox, or wait for their response."""
