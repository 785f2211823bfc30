"""What the MessageBox stores about sinks: their batches and their progress."""
