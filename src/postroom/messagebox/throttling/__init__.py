"""The load of the MessageBox, and the pauses of publishers while there is too much of it."""
