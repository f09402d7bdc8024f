"""Logging stays the script's own.

torch_xla 2.9 calls ``logging.basicConfig()`` when it is imported. The script's own call then does
nothing, and all that it logs below a warning is lost.
"""

import logging
import sys


def install() -> None:
    """Take the handler of a bare ``basicConfig()`` away; warnings still reach standard error."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        form = handler.formatter._fmt if handler.formatter is not None else None
        bare = type(handler) is logging.StreamHandler and form == logging.BASIC_FORMAT
        if bare and handler.stream is sys.stderr and root.level == logging.WARNING:
            root.removeHandler(handler)
