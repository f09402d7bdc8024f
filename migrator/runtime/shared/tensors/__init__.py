"""What a tensor is: its memory, views, types, methods, and the values that hold it."""
