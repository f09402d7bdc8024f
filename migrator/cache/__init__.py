"""The cache: results of earlier runs, valid as long as everything that they read is the same."""
