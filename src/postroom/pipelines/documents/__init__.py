"""The documents of an interchange while a pipeline runs: batches, spooled bodies, lines and limits."""
