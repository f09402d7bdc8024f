"""What one file says: its names, scopes, bindings and scripts."""
