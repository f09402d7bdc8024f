"""Files on the disk and in git: found, read, and written so that nothing is ever lost."""
