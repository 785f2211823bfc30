"""What tests share: waiting for conditions, databases to work on."""
