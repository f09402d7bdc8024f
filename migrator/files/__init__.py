"""Files on disk and in git: found, read, and written without losing anything."""
