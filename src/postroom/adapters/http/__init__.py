"""Sending by HTTP and HTTPS, and the definitions of both directions.

Receiving needs the MessageBox, so it is in postroom.receiving.http.
"""
