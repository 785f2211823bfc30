"""An HTTP/1.1 server. It knows nothing of messages, ports and the MessageBox."""
