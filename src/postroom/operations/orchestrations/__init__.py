"""Deploy orchestrations, change their states, and read the stories of their instances."""
