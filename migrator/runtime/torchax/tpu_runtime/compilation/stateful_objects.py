"""Objects with a state of their own, which a trace would change, and a program would not.

An iterator gives another value each time, and so does a generator of random numbers. Traced, that
value would be a constant of the program. So code that uses such an object runs as it is.
"""

import collections
import io
import queue
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch

_KINDS = (
    collections.deque, io.IOBase, queue.Queue, queue.SimpleQueue, random.Random,
    numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator,
)  # fmt: skip


def keeps_state(value: Any) -> bool:
    """Whether an object, or an item of a list, tuple or dict, changes when it is used.

    What an object of the program's own has in its attributes is known otherwise.
    """
    if isinstance(value, (list, tuple)):
        return len(value) <= _SHORT and any(map(_is_stateful, value))
    if isinstance(value, dict):
        return len(value) <= _SHORT and any(map(_is_stateful, value.values()))
    return _is_stateful(value)


_SHORT = 64  # longer ones hold data


def _is_stateful(value: Any) -> bool:
    if isinstance(value, _KINDS):
        return True
    if isinstance(value, torch._C.Generator):  # a runtime replaces torch.Generator
        return value.device.type == "cpu"
    return isinstance(value, Iterator) and not hasattr(value, "__dict__")
