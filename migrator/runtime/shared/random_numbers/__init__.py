"""Seeds, generators, and the numbers drawn."""
