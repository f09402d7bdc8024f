"""Calls of a program between which nothing that it depends on can have changed.

That is the case while transformers' `generate` goes from token to token: a program that fitted fits
again. For a small model, checking that would take longer than running it.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import natively
from ..tensors.structures import Structure
from .function_state import CallArguments, mode_of, unique

if TYPE_CHECKING:
    from .compiled_program import Program

# .fitting: programs that fitted, with the values at their places; .calls: the last of each
_now = threading.local()


@contextlib.contextmanager
def skipping_guards(is_steady: bool) -> Iterator[None]:
    """In this context, only library code and compiled code run; or, if False, any code may."""
    before = getattr(_now, "fitting", None), getattr(_now, "calls", None)
    _now.fitting, _now.calls = ({}, {}) if is_steady else (None, None)
    try:
        yield
    finally:
        _now.fitting, _now.calls = before


@contextlib.contextmanager
def passing_tensors_on() -> Iterator[None]:
    """In this context device tensors are only passed on: torchax handles no operator."""
    guard = torch._C._DisableTorchDispatch()
    try:
        with natively():
            yield
    finally:
        del guard


@contextlib.contextmanager
def handling_operators() -> Iterator[None]:
    """Within `passing_tensors_on`, a context in which torchax does handle operators."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch._C._EnableTorchFunction():
        yield


def surroundings(program: "Program") -> list[Structure] | None:
    """The values at the program's places, if they are known to be unchanged."""
    fitting = getattr(_now, "fitting", None)
    return fitting.get(program) if fitting else None


def note(program: "Program", found: list[Structure]) -> None:
    """Note that a program fits, with these values at its places."""
    fitting = getattr(_now, "fitting", None)
    if fitting is not None and not program.stores:
        fitting[program] = found


_HOLDERS = dict, list, tuple


class Known:
    """A call of a program that may be repeated with other tensors and no other change."""

    def __init__(self, program: "Program", call: CallArguments, around: list[Structure]) -> None:
        self.program, self.call = program, call
        self._inputs = unique([*around, call.structure])
        inside = [x for _, _, given in call.structure.parts[1][2].parts for x in given.within()]
        self.can_be_told = all(isinstance(holder, _HOLDERS) for holder, _, _ in inside)
        self._inside = [(holder, name, part.value) for holder, name, part in inside]
        holders = {id(holder): holder for holder, _, _ in inside if isinstance(holder, _HOLDERS)}
        self._sizes = [(holder, len(holder)) for holder in holders.values()]

    def inputs_of(
        self, env: Environment, args: Any, kwargs: dict[str, Any]
    ) -> list[torch.Tensor] | None:
        """The tensors for the program if it fits another call as well."""
        before = self.call.given[1]
        if args or kwargs.keys() != before.keys() or mode_of(env) != self.call.mode:
            return None
        others: dict[int, torch.Tensor] = {}
        for name, value in kwargs.items():
            old = before[name]
            if value is not old:
                if id(value) in others or not _is_alike(value, old):
                    return None
                others[id(old)] = value
        if any(len(holder) != size for holder, size in self._sizes):
            return None
        try:
            if any(holder[name] is not value for holder, name, value in self._inside):
                return None
        except KeyError:
            return None
        inputs = [others.get(id(tensor), tensor) for tensor in self._inputs]
        return inputs if len(set(map(id, inputs))) == len(inputs) else None


def _is_alike(value: Any, other: Any) -> bool:
    """Whether both are tensors of the same shape and dtype, and not aliases."""
    if not (type(value) is type(other) is Tensor):
        return False
    one, two = value.__dict__, other.__dict__
    if one.get("_link") is not None or two.get("_link") is not None:
        return False
    array, known = one["_elem"], two["_elem"]
    return array.shape == known.shape and array.dtype == known.dtype and not value.requires_grad


def last_of(owner: object) -> Known | None:
    """The last call, if only its arguments may have changed."""
    calls = getattr(_now, "calls", None)
    return calls.get(owner) if calls else None


def note_call(
    owner: object, program: "Program", call: CallArguments, around: list[Structure]
) -> None:
    """Note a call, in case the next one only has other arguments."""
    calls = getattr(_now, "calls", None)
    if calls is not None and not call.given[0]:
        known = Known(program, call, around)
        if known.can_be_told:
            calls[owner] = known
