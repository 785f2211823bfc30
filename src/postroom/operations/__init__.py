"""What people and programs do with a MessageBox: the one service layer under command line, API and console."""
