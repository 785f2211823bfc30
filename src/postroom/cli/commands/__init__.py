"""The commands. Each module has the commands of one noun, or one command."""
