"""Housekeeping jobs, the consistency check and its repairs."""
