"""Sending by HTTP and HTTPS, and the definitions of both directions."""
