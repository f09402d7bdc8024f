"""A run: files are found, migrated in processes, and saved with the runtime that they need."""
