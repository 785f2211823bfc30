"""Throttling: slows down publishing and delivery while there is too much load."""
