"""Commands that create, deploy and run applications."""
