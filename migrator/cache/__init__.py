"""The cache: what earlier runs have found out, as long as all that they looked at is the same."""
