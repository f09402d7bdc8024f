"""What goes wrong for the caller to see."""


class UsageError(Exception):
    """Wrong usage: one line that says what and where."""


def installed_by(extra: str) -> str:
    """How to install what is optional: tpu-migrate is on no package index."""
    return f"pip install '.[{extra}]' in a clone of tpu-migrate"


def to_send(shown: str = "") -> str:
    """What to do about an internal error: the last paragraph of a run."""
    import platform
    from importlib.metadata import version

    versions = f"tpu-migrate {version('tpu-migrate')}, Python {platform.python_version()}"
    return (
        "An internal error is a fault of tpu-migrate: please send its maintainers the message, the "
        f"traceback{shown}, the versions ({versions}) and, if you may, the file."
    )
