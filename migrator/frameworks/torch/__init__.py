"""PyTorch: what of it counts as GPU code, and where files say so."""
