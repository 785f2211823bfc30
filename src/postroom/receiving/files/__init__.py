"""Files as interchanges: they settle, are claimed, received, and then removed or archived."""
