"""Files in folders."""
