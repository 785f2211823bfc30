"""HTTP and HTTPS."""
