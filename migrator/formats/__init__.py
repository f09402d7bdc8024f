"""File formats: how bytes become source text and back."""
