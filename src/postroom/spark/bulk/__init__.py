"""Bulk receive: a reader of Spark reads rows, and its tasks publish each row as a message."""
