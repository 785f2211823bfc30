"""What can be wrong with an application: in itself, and beside those that are deployed."""
