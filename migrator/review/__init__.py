"""Review: a change that migrates code, held against what this tool makes of the old text."""
