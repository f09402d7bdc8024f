"""Random training loops, as people write them: the original on CPU torch, migrated on torchax."""
