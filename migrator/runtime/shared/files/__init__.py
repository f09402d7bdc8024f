"""Files of tensors and images."""
