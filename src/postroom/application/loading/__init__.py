"""From a user's file to the definition of its application."""
