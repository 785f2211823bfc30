"""What stands behind a dynamic send port: the address and the adapter come with each message."""
