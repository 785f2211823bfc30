"""The service layer: every operation on a MessageBox that the command line, the API and the console share."""
