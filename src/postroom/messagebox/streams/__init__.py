"""What the MessageBox stores about running streams: locations, sinks, row streams."""
