"""History: what is in the MessageBox, read back as tables of Spark."""
