"""The subscription language: expressions, their text form, and the index that finds the matching filters."""
