"""The Message Agent: one way into the MessageBox (publish), used by direct, receiving, resuming, failed_messages."""
