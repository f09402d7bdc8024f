"""How calls of torch reach the device: modes, replaced functions, kernels, and the CPU instead."""
