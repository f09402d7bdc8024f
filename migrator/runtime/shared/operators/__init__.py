"""Operators and layers that the target gets wrong, or lacks."""
