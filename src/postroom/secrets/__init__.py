"""Secrets: hashes of what callers send, and references to what Postroom sends."""
