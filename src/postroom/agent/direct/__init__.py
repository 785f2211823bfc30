"""The direct lane: publish messages of a program."""
