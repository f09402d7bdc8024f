"""Devices: where programs choose them and test for them, and what only exists in CUDA."""
