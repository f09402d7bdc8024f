"""What values are, and what shows it."""
