"""Text generation: transformers' `generate`, its caches, and growing text."""
