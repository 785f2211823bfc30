"""Deploy orchestrations, change their states, and read the stories and journals of their instances."""
