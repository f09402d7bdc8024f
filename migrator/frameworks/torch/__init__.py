"""PyTorch: what counts as GPU code in it, and where files contain it."""
