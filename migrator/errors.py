"""What goes wrong for the caller to see."""


class UsageError(Exception):
    """Wrong usage: one line that says what and where."""


def installed_by(extra: str) -> str:
    """How to install what is optional: tpu-migrate is on no package index."""
    return f"pip install '.[{extra}]' in a clone of tpu-migrate"
