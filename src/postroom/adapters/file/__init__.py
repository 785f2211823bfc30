"""The File adapter: files in folders."""
