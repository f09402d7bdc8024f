"""Libraries that train models: Lightning, accelerate and what is built on it, and their loaders."""
