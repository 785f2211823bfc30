"""The command line: `postroom NOUN VERB`. The module of a command is imported only when the command is run."""
