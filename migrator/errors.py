"""What goes wrong for the caller to see."""


class UsageError(Exception):
    """Wrong usage: one line that says what and where."""
