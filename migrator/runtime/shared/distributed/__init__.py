"""Several devices: ranks, process groups, collectives, meshes, and models on all of them."""
