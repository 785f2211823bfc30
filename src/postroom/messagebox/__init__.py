"""The MessageBox: PostgreSQL tables and procedures with BizTalk's names, and typed functions that call them."""
