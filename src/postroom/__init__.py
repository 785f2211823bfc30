"""Postroom: an integration server. Spark is its data pipeline, PostgreSQL its MessageBox."""

from __future__ import annotations

__version__ = "0.1.0"
