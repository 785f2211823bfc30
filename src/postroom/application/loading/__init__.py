"""Load applications from users' files."""
