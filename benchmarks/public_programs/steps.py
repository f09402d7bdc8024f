"""How long the training batches of a program take: `python steps.py COUNT OUT SCRIPT ARGUMENTS…`

The program ends after COUNT batches, or by itself. OUT gets the CPU seconds from one batch that a
shuffling loader gives to the next; where no loader shuffles, from any that comes while gradients
are on. Nothing stands in a step that would keep it from being compiled. Where torch_xla's loader
reads ahead in threads, what it hands to the program counts.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import runpy
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

count, out, script = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
shuffled: list[float] = []
in_order: list[float] = []
stock = _BaseDataLoaderIter.__next__


def write() -> None:
    begun = shuffled or in_order
    out.write_text(json.dumps([b - a for a, b in itertools.pairwise(begun)]))


def note(sampler: object) -> None:
    """A batch comes to the program; the last one ends it."""
    if not isinstance(sampler, SequentialSampler):
        shuffled.append(time.process_time())
    elif torch.is_grad_enabled():
        in_order.append(time.process_time())
    if len(shuffled or in_order) > count:
        write()
        sys.stdout.flush()
        os._exit(0)


def following(self: Any) -> Any:
    batch = stock(self)
    if threading.current_thread() is threading.main_thread():
        note(getattr(self._index_sampler, "sampler", None))
    return batch


def handing(self: Any) -> Any:
    batch = handed(self)
    note(self._loader._cpu_loader.batch_sampler.sampler)
    return batch


_BaseDataLoaderIter.__next__ = following
if find_spec("torch_xla") is not None:
    from torch_xla.distributed.parallel_loader import PerDeviceLoader

    handed = PerDeviceLoader.next
    PerDeviceLoader.next = handing
atexit.register(write)
sys.argv[:] = sys.argv[3:]
sys.path[0] = str(Path(script).parent)
runpy.run_path(script, run_name="__main__")
