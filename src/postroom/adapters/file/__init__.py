"""The File adapter: its definition, and sending.

Receiving needs the MessageBox, so it is in postroom.receiving.files.
"""
