"""The direct lane: messages of a program, published at once."""
