"""What stands before a stream: files are claimed, handed-over interchanges numbered, by one process at a time."""
