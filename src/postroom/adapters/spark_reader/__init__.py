"""The Spark reader: whatever Spark can read, row by row."""
