"""The contents of one file: its names, scopes, bindings and scripts."""
