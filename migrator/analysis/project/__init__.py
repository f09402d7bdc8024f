"""The files of a project: which imports which, what starts them, and what follows from that."""
