"""Checks of an application: alone, and together with the deployed applications."""
