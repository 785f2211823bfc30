"""Bulk: rows that a reader of Spark reads, each a message, published by its tasks."""
