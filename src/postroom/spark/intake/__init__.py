"""The intake of receive locations: one process at a time claims the files, or numbers the rows of the inbox."""
