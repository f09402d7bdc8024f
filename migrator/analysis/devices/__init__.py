"""Devices: where they are chosen and asked for, and what only CUDA has."""
