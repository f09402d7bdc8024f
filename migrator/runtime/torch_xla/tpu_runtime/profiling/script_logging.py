"""Keep the script's own logging configuration.

torch_xla 2.9 calls ``logging.basicConfig()`` at import. The script's own call then does
nothing, and everything that it logs below a warning is lost. It may stand between its imports,
above ``setup()``.
"""

import logging
import sys


def keep_own() -> None:
    """Remove the handler of a bare ``basicConfig()``; warnings still reach standard error."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        form = handler.formatter._fmt if handler.formatter is not None else None
        if type(handler) is not logging.StreamHandler or form != logging.BASIC_FORMAT:
            continue
        if handler.stream is sys.stderr and root.level == logging.WARNING:
            root.removeHandler(handler)
