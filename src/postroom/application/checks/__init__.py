"""Checks of an application: by itself, and against those that are deployed."""
