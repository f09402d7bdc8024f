"""Whether code only computes, so that it may be traced before it has run once.

For a step that has run, it is known whose code ran and what it may change in Python
(state_guards.py): a trace undoes that. For a new step nothing is known. So each function of the
program's own is inspected at its first call, and code that may have a lasting effect is not
started: it stores into an object, a variable of an outer scope, or a list that it didn't create.
Writes to tensors are allowed, because a trace undoes them.
"""

import functools
import gc
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any, NoReturn

import jax
import torch
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils.weak import TensorWeakRef
from torchax.tensor import Tensor

from ..dispatch.calls import holds_device_tensor
from .bytecode_names import Operation, operations_of
from .compile_state import Suspect
from .initial_optimizer_state import is_known
from .program_code import is_generated, is_library
from .stateful_objects import keeps_state

_STORES = {
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "DELETE_ATTR", "STORE_SUBSCR",
    "DELETE_SUBSCR", "STORE_SLICE", "IMPORT_NAME",
}  # fmt: skip
_ACTING = {
    "setattr", "delattr", "next", "exec", "eval", "vars", "globals", "locals", "open", "input",
    "heappush", "heappop", "heapify",
}  # fmt: skip
_CHANGING = {
    "append", "extend", "insert", "pop", "popitem", "popleft", "appendleft", "extendleft", "remove",
    "clear", "update", "setdefault", "subtract", "reverse", "write", "writelines", "put",
    "put_nowait", "get_nowait", "fill", "copyto", "rotate", "heappush", "heappop", "heapify",
    "send", "throw", "acquire", "release", "set", "__dict__",
    "__setattr__", "__setitem__", "__delitem__", "__next__", "register_buffer",
    "register_parameter", "register_module", "add_module", "load_state_dict", "requires_grad_",
}  # fmt: skip
_BEGIN = Operation("", None, "", False)
_MAKING = {"BUILD_LIST", "BUILD_MAP", "BUILD_SET", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"}
_WITH_STATE = tuple(
    torch.__path__[0] + place
    for place in (
        "/optim/lr_scheduler.py", "/optim/swa_utils.py", "/amp/grad_scaler.py", "/profiler/",
        "/utils/data/", "/utils/tensorboard/", "/distributed/",
    )
)  # fmt: skip
_PURE_MODULES = (
    "contextlib.py", "typing.py", "enum.py", "abc.py", "_collections_abc.py", "copy.py",
    "numbers.py", "dataclasses.py", "operator.py", "types.py", "warnings.py",
)  # fmt: skip
_MONITORING = jax.monitoring.record_event.__code__.co_filename
_STANDARD = contextmanager.__code__.co_filename.removesuffix("contextlib.py")


@cache
def only_computes(code: CodeType) -> bool:
    """Whether running ``code`` changes nothing but tensors and its own variables."""
    operations = operations_of(code)
    own = _made_here(code, operations)
    for previous, operation in itertools.pairwise([_BEGIN, *operations]):
        kind, name = operation.kind, operation.name
        on_own = previous.kind.startswith("LOAD_FAST") and previous.name in own
        if kind in _STORES:
            return False
        if kind == "STORE_ATTR" and not (code.co_name == "__init__" and _is_self(code, previous)):
            return False
        if kind in ("STORE_DEREF", "DELETE_DEREF") and name in code.co_freevars:
            return False
        if kind == "LOAD_GLOBAL" and name in _ACTING:
            return False
        if kind in ("LOAD_METHOD", "LOAD_ATTR") and name in _CHANGING and not on_own:
            return False
        if kind == "BINARY_OP" and operation.text.endswith("=") and _is_list(previous):
            return False  # `items += [x]`
    return True


def _made_here(code: CodeType, operations: list[Operation]) -> set[Any]:
    """The local variables that only hold lists and dicts that this code creates."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    made: set[Any] = set()
    others = {*code.co_varnames[:arguments]}
    for previous, operation in itertools.pairwise(operations):
        if operation.kind.startswith("STORE_FAST"):
            fresh = previous.kind in _MAKING and not operation.is_target
            (made if fresh else others).add(operation.name)
    return made - others


def _kinds_of(kind: type) -> set[type]:
    """A class and all that inherit from it."""
    return {kind}.union(*map(_kinds_of, kind.__subclasses__()))


def _is_self(code: CodeType, operation: Operation) -> bool:
    first = next(iter(code.co_varnames), None)
    return operation.kind.startswith("LOAD_FAST") and bool(operation.name == first)


def _is_list(operation: Operation) -> bool:
    return operation.kind in (*_MAKING, "BUILD_TUPLE")


class Inspection:
    """Inspects all code that starts while a function runs."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()  # the program's own code that ran
        self.refused = ""  # the code that was not started
        self._passed: dict[int, CodeType] = {}
        self._writes = _Writes(self)
        kinds = {functools._lru_cache_wrapper, *_kinds_of(Tensor)}
        there = [o for o in gc.get_objects() if type(o) in kinds]
        self.tensors = [TensorWeakRef(o) for o in there if issubclass(type(o), Tensor)]
        caches = (o.__wrapped__ for o in there if type(o) is functools._lru_cache_wrapper)
        found = (getattr(function, "__code__", None) for function in caches)
        self._kept = {id(code) for code in found if code is not None}  # whose results are kept

    @staticmethod
    def is_possible() -> bool:
        return sys.gettrace() is None  # otherwise a debugger is active

    def __enter__(self) -> None:
        """Raise Suspect if code starts that may do more than compute."""
        self._writes.__enter__()
        sys.settrace(self._begins)

    def __exit__(self, *error: Any) -> None:
        sys.settrace(None)
        self._writes.__exit__(*error)

    @contextmanager
    def paused(self, optimizer: Optimizer) -> Iterator[None]:
        """During an optimizer's step: inspecting its known code would double the time."""
        if not is_known(optimizer):
            yield
            return
        looking = sys.gettrace()
        sys.settrace(None)
        try:
            yield
        finally:
            sys.settrace(looking)

    def refuse(self, name: str) -> NoReturn:
        self.refused = name
        raise Suspect(name)

    def _begins(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if id(code) in self._passed:
            return
        caller = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        if not is_library(code.co_filename) and not is_generated(frame.f_globals):
            if caller == _MONITORING:
                return  # no part of the step: a listener to tracing
            if id(code) in self._kept or not only_computes(code) or _uses_state(frame):
                self.refuse(code.co_name)
            self.codes.add(code)
        elif not _is_harmless(code.co_filename):
            if not is_library(caller):
                self.refuse(code.co_name)
            return  # the library itself calls it, or the program does later
        self._passed[id(code)] = code


def _uses_state(frame: FrameType) -> bool:
    """Whether code that begins names an object with a state of its own."""
    names, local = frame.f_code.co_names, frame.f_locals
    # A comprehension's own iterator, `.0`, is one that the code around it has made or names.
    given = [value for name, value in local.items() if name != ".0"]
    owners = (getattr(value, "__dict__", None) for value in given)
    held = [owner for owner in owners if isinstance(owner, dict)]
    owned = (owner[name] for owner in held for name in names if name in owner)
    variables = (frame.f_globals[name] for name in names if name in frame.f_globals)
    return any(map(keeps_state, (*given, *variables, *owned)))


class _Writes(TorchFunctionMode):
    """Raises Suspect if a CPU tensor is written to, which a trace doesn't undo."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self._inspection = inspection

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        in_place = name.endswith("_") and (not name.endswith("__") or name.startswith("__i"))
        if (in_place or "out" in kwargs) and not holds_device_tensor((args, kwargs)):
            self._inspection.refuse(name)
        return func(*args, **kwargs)


@cache
def _is_harmless(filename: str) -> bool:
    """Whether the program may call code in this file of a library."""
    if filename.startswith(_STANDARD) and "-packages" not in filename:
        return filename.removeprefix(_STANDARD) in _PURE_MODULES
    return not filename.startswith((*_WITH_STATE, "<frozen"))
