"""Reads of values: `.item()`, `bool()`, `.cpu()`, the indices of a mask.

torch_xla evaluates only such a value; all other operations stay recorded. In a loop that reads
values and has no sync (an adaptive solver in a library), each iteration would compile a larger
graph: time and memory grow with the square of the number of iterations.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_xla import _XLAC

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, replace_all, stock
from ..profiling import reads_in_steps
from ..profiling.reads_in_steps import Place

_ENOUGH = 2  # new programs: a value read once a step needs one, a growing graph needs more
_FOLDERS = (Path(torch.__file__).parent, Path(__file__).parents[1])  # torch, this package
_NOT_THE_READER = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)

# By place: the number of the step, and how many programs were compiled in it.
_compiled: dict[Place, tuple[int, int]] = {}


def _count(counter: str) -> int:
    return _XLAC._xla_counter_value(counter) or 0


def place_outside() -> Place | None:
    """The instruction that is under way, outside torch and this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_READER):
        frame = frame.f_back  # type: ignore[assignment]
    return frame and (frame.f_code, frame.f_lasti)


def _read_value(tensor: Tensor, read: Callable[[], Any]) -> Any:
    """The result of ``read``; if it compiles again and again, all recorded operations run first.

    Then the next iteration starts with computed tensors, and can use the same program. With several
    ranks torch_xla's behaviour stays: a rank that reads alone must not run collectives in which the
    others don't take part.
    """
    if tensor.device.type != DEVICE_TYPE or _XLAC._xla_get_replication_devices_count():
        return read()
    place = place_outside() if _XLAC._check_tensor_need_materialization([tensor])[0] else None
    if place is None:
        return read()
    reads_in_steps.note_read(place)
    step = _count("MarkStep")
    last, compiled = _compiled.get(place, (step, 0))
    if compiled >= _ENOUGH:
        _XLAC._xla_sync_live_tensors(str(tensor.device), [], wait=False)
        return read()
    before = _count("UncachedCompile")
    value = read()
    if _count("UncachedCompile") > before:
        _compiled[place] = (step, compiled + 1 if last == step else 1)
    return value


def _kernel(name: str) -> Kernel:
    read = stock(name)
    return lambda self: _read_value(self, lambda: read(self))


def _reading(method: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    @functools.wraps(method)
    def of_tensor(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _read_value(self, lambda: method(self, *args, **kwargs))

    return of_tensor


def install() -> None:
    """Intercept functions that read values of the device."""
    replace_all({_kernel: "_local_scalar_dense nonzero"})
    for name in ("cpu", "tolist"):
        setattr(Tensor, name, _reading(getattr(Tensor, name)))
