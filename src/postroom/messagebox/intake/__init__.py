"""What the MessageBox stores about receiving: claimed files, numbers, splits, streams of rows, progress."""
