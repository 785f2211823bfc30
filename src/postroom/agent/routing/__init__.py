"""Who subscribes to a message: the index in memory, the MessageBox, correlation and convoys."""
