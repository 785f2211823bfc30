"""The MessageBox: PostgreSQL tables and procedures named after the source document's, and typed ways to reach them."""
