"""Folders and files that other users and programs can reach."""
