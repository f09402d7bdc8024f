"""The kinds of values, and how the source shows them."""
