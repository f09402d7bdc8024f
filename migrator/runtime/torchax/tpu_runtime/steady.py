"""Between two calls of a program nobody may have run who could change what it depends on.

So it is while transformers' `generate` goes from token to token: then what fitted fits again, and
is not looked at anew, which for a small model takes longer than to run it.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from .calls import natively

if TYPE_CHECKING:
    from .programs import Program
    from .structures import Structure

_now = threading.local()  # .fitting: the programs that fitted, with what stands at their places


@contextlib.contextmanager
def steady(is_steady: bool) -> Iterator[None]:
    """Nobody runs from here on but libraries, and what is compiled; or anybody may."""
    before, _now.fitting = getattr(_now, "fitting", None), {} if is_steady else None
    try:
        yield
    finally:
        _now.fitting = before


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Within it what is on the device is passed on only: torchax looks at no operator."""
    guard = torch._C._DisableTorchDispatch()
    try:
        with natively():
            yield
    finally:
        del guard


@contextlib.contextmanager
def there() -> Iterator[None]:
    """Within `apart`, what is done with it."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch._C._EnableTorchFunction():
        yield


def surroundings(program: "Program") -> "list[Structure] | None":
    """What stands at the program's places, if that is known to be as it was."""
    fitting = getattr(_now, "fitting", None)
    return fitting.get(program) if fitting else None


def note(program: "Program", found: "list[Structure]") -> None:
    """It fits, and these stand at its places."""
    fitting = getattr(_now, "fitting", None)
    if fitting is not None and not program.stores:
        fitting[program] = found
