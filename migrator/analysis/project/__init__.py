"""The files of a project: who imports whom, what starts them, and what they mean together."""
