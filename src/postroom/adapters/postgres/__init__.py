"""The PostgreSQL adapters: receive rows by a claim query, and send messages as rows of a table."""
