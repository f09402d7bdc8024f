"""What a program depends on in Python, beside the arguments of the call.

Watching whose code runs tells the variables that it names: those around its functions, the
attributes of the objects that its methods belong to, and of the modules that take part. Numbers and
objects that stay the same are guarded: a program fits as long as they are what they were. Tensors
that stand in a variable or an attribute come in by their place, as arguments do.
"""

import _lsprof
import collections
import contextlib
import copy
import gc
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy
import torch
import torchax
from jax._src import monitoring
from torch.optim import Optimizer
from torchax.tensor import Tensor

from .calls import is_device_tensor
from .names import names_of, union
from .structures import MISSING, Held, Structure, is_ours, is_value

# Files whose code is no part of a program's, by their beginnings. What watches a program from
# inside its process, as `tpu-migrate verify` does, adds its folder.
LIBRARIES: tuple[str, ...] = (
    *(str(Path(str(m.__file__)).parent) + os.sep for m in (torch, torchax, jax, numpy)),
    str(Path(__file__).parent) + os.sep,
    "<frozen",
)
_PACKAGES = ("torch", "torchax", "jax", "jaxlib", "numpy", __name__.partition(".")[0])
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)
KEPT = "_tpu_runtime_parts"  # the attribute where parts.py keeps what it knows of its owner
_INTERNAL = frozenset({*vars(torch.nn.Module()), KEPT}) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTENTS = (list, set, collections.deque)
_LARGE = 1 << 16  # elements of an array of numpy, from which on it stands for itself
_DEPTH = 3


def is_library(filename: str) -> bool:
    """Whether code of this file is torch's, JAX's or Python's own."""
    if filename.startswith(LIBRARIES):
        return True
    return filename.startswith(_STANDARD) and "-packages" not in filename


def is_generated(variables: dict[str, Any]) -> bool:
    """Whether code with these global variables is a library's: that of a dataclass has no file."""
    return variables.get("__name__", "").partition(".")[0] in _PACKAGES


@contextlib.contextmanager
def without_callbacks() -> Iterator[None]:
    """Let nobody be told of the garbage collector's runs: that is no part of what runs."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        yield
    finally:
        gc.callbacks[:0] = callbacks


class Scope(dict[str, Any]):
    """The variables that a function takes from the functions around it, and its defaults."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__()
        self.refresh(function)

    def refresh(self, function: FunctionType | None = None) -> None:
        """Their values now; ``function`` is a new one of the same code."""
        self.function = function or self.function
        self.clear()
        names = self.function.__code__.co_freevars
        for name, cell in zip(names, self.function.__closure__ or (), strict=True):
            try:
                self[name] = cell.cell_contents
            except ValueError:  # no value yet
                self[name] = MISSING
        for number, value in enumerate(self.function.__defaults__ or ()):
            self[f"default {number}"] = value
        for name, value in (self.function.__kwdefaults__ or {}).items():
            self[f"default {name}"] = value

    def put(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        cells = self.function.__closure__ or ()
        cell = cells[self.function.__code__.co_freevars.index(name)]
        if value is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = value


def put(holder: Any, name: Any, value: Any) -> None:
    """Set a variable, an attribute (of ``vars``) or an item."""
    if isinstance(holder, Scope):
        holder.put(name, value)
    elif value is MISSING:
        holder.pop(name, None)
    else:
        holder[name] = value


class Watch:
    """Whose code runs, and around which functions there are variables."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}  # the user's, with their global variables
        self.functions: list[FunctionType] = []  # with variables of functions around them
        self.owner: Any = None  # of a method
        self.is_blind = False  # as a profiler of the user's is at work
        self._seen: set[CodeType] = set()

    @contextlib.contextmanager
    def running(self, watching: bool = True) -> Iterator[None]:
        """Note what runs, by Python's profiler in C: one in Python takes ten times as long."""
        profiler = _lsprof.Profiler(builtins=False, subcalls=False)
        self.is_blind = watching and not _enable(profiler)
        try:
            yield
        finally:
            if watching and not self.is_blind:
                profiler.disable()
                ran = {e.code for e in profiler.getstats() if isinstance(e.code, CodeType)}
                ran -= _told_by_jax()
                self.learn({code for code in ran - self._seen if not is_library(code.co_filename)})
                self._seen |= ran

    def learn(self, codes: set[CodeType]) -> None:
        """Note code of the program's own that ran."""
        codes -= self._seen
        self._seen |= codes
        if not codes:
            return
        functions = [f for f in gc.get_referrers(*codes) if isinstance(f, FunctionType)]
        # Those that others of them make are made anew at every call.
        inner = {c for code in codes for c in code.co_consts if isinstance(c, CodeType)}
        for function in functions:
            if is_generated(function.__globals__):
                continue
            for code in _with_inner(function.__code__):
                self.codes[code] = function.__globals__
            if function.__closure__ and function.__code__ not in inner:
                self.functions.append(function)


def _told_by_jax() -> set[CodeType]:
    """The code of those who listen to what JAX does: that is no part of what runs."""
    listeners = [
        *monitoring.get_event_listeners(), *monitoring.get_event_duration_listeners(),
        *monitoring.get_event_time_span_listeners(), *monitoring.get_scalar_listeners(),
    ]  # fmt: skip
    return {listener.__code__ for listener in listeners if isinstance(listener, FunctionType)}


def _enable(profiler: Any) -> bool:
    if sys.getprofile() is not None:
        return False
    try:
        profiler.enable()
    except ValueError:  # from Python 3.12 on
        return False
    return True


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


class Guards:
    """The surroundings of a program: what must be as it is now, and where its tensors stand."""

    def __init__(
        self,
        scopes: list[Scope],
        watch: Watch,
        modules: Iterable[torch.nn.Module],
        optimizers: Iterable[Optimizer],
        replaced: set[tuple[int, Any]],
        by_identity: set[int],
        arguments: Structure | None = None,
    ) -> None:
        self.scopes, self._replaced, self._by_identity = scopes, replaced, by_identity
        self.values: list[tuple[Any, Any, Any]] = []  # holder, name, what must be there
        self.labels: list[str] = []
        self.names_held: list[tuple[Any, list[Any]]] = []  # names that a holder must have
        self.sizes: list[tuple[Any, int]] = []  # their number, where each of them is guarded
        self.places: list[tuple[Any, Any, Any, str]] = []  # holder, name, key of its structure
        self.fixed: dict[int, torch.Tensor] = {}  # tensors that are found where they were
        self.on_cpu: list[torch.Tensor] = []  # the same, on the CPU
        self.holders: dict[int, tuple[Any, list[Any] | None, str]] = {}  # what a step may change
        self.inner: dict[int, tuple[Any, Any, Any] | None] = {}  # holders in what may come anew
        self._done: set[tuple[int, Any]] = set()
        codes = list(watch.codes) + [scope.function.__code__ for scope in scopes]
        self.names = union(map(names_of, codes))
        for scope in list(scopes):
            self._add_scope(scope.function, _DEPTH)
        for code, variables in watch.codes.items():
            self._add_globals(code, variables)
        for scope in scopes:
            self._add_globals(scope.function.__code__, scope.function.__globals__)
        for module in modules:
            self._add_module(module)
        if arguments is not None:
            self._fix_all(arguments.held)
        owner = getattr(watch.owner, "__dict__", None)
        if owner is not None and not isinstance(watch.owner, torch.nn.Module):
            self._add_owner(watch.owner)
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            self._fix([*group["params"], group["lr"]])
            if isinstance(group["lr"], torch.Tensor) and not is_device_tensor(group["lr"]):
                self.on_cpu.append(group["lr"])

    # ---- what is guarded ------------------------------------------------------------------------

    def _add_globals(self, code: CodeType, variables: dict[str, Any]) -> None:
        names = [name for name in names_of(code).variables if name in variables]
        self._hold(variables, "", names)
        self._add_all(variables, names, "")

    def _add_module(self, module: torch.nn.Module) -> None:
        held, label = vars(module), f"{type(module).__name__}."
        names = [name for name in held if name not in _INTERNAL]
        self._hold(held, label)
        self._add_all(held, names, label)
        self.sizes.append((held, len(_names(held))))
        for hooks in _HOOKS:
            self.sizes.append((held[hooks], len(held[hooks])))
            self._add_all(held[hooks], list(held[hooks]), f"{label}{hooks}.")
        for kind in ("_parameters", "_buffers", "_modules"):
            self._hold(held[kind], label)
            self.sizes.append((held[kind], len(held[kind])))
            for name, value in held[kind].items():
                if value is not None and (id(held[kind]), name) in self._replaced:
                    self._add(held[kind], name, label)
                else:
                    self._value(held[kind], name, value, label)
                    self._fix([value])

    def _add_owner(self, owner: Any) -> None:
        held, label = vars(owner), f"{type(owner).__name__}."
        self._hold(held, label)
        self.names_held.append((held, _names(held)))
        self._add_all(held, [n for n, value in held.items() if self.names.matter(n, value)], label)
        self._add_class(type(owner))

    def _add_class(self, kind: type) -> None:
        for base in kind.__mro__:
            if base.__module__ in ("builtins", "abc") or base.__module__.startswith("torch."):
                continue
            for name, value in vars(base).items():
                if is_value(value) and self.names.matter(name, value):
                    self._value(vars(base), name, value, f"{base.__name__}.")

    def _add_all(self, holder: Any, names: Iterable[Any], label: str, depth: int = _DEPTH) -> None:
        for name in names:
            self._add(holder, name, label, depth)

    def _add(self, holder: Any, name: Any, label: str, depth: int = _DEPTH) -> None:
        if (id(holder), name) in self._done:
            return
        self._done.add((id(holder), name))
        value = holder[name]
        if isinstance(value, (torch.nn.Module, Optimizer)) or is_value(value) or is_ours(value):
            self._value(holder, name, value, label)
            self._fix_all([value])
        elif isinstance(value, _CODE):
            self._value(holder, name, value, label)
            self._look_into_code(value, depth)
        elif type(value) in _CONTENTS and all(map(is_value, value)):
            if type(value) is list:
                self._hold(value, f"{label}{name}.")
            self._value(holder, name, copy.copy(value), label)
        elif isinstance(value, numpy.ndarray) and value.size <= _LARGE:
            self._value(holder, name, value.copy(), label)
        elif self._is_kept_on_cpu(holder, name, value):
            self.on_cpu.append(value)
            self._value(holder, name, value, label)
        elif isinstance(value, (torch.Tensor, list, dict, tuple)):
            self._add_structure(holder, name, value, label)
        elif not self._add_structure(holder, name, value, label, only_with_tensors=True):
            self._value(holder, name, value, label)
            if depth and isinstance(getattr(value, "__dict__", None), dict):
                held, inner = vars(value), f"{label}{name}."
                names = [n for n, inside in held.items() if self.names.matter(n, inside)]
                self._hold(held, inner, names)
                self.names_held.append((held, list(held)))
                self._add_all(held, names, inner, depth - 1)
                self._add_class(type(value))

    def _add_scope(self, function: FunctionType, depth: int) -> None:
        scope = next((scope for scope in self.scopes if scope.function is function), None)
        if scope is None:
            scope = Scope(function)
            self.scopes.append(scope)
        self._hold(scope, "", [n for n in scope if not n.startswith("default ")])
        self._add_all(scope, scope, "", depth)

    def _is_kept_on_cpu(self, holder: Any, name: Any, value: Any) -> bool:
        """A CPU tensor may serve as numbers; it is no input until another one takes its place."""
        return (
            isinstance(value, torch.Tensor)
            and not is_device_tensor(value)
            and (id(holder), name) not in self._replaced
        )

    def _look_into_code(self, value: Any, depth: int) -> None:
        if isinstance(value, FunctionType):
            if depth and value.__closure__ and not is_library(value.__code__.co_filename):
                self._add_scope(value, depth - 1)
            self._fix(value.__defaults__ or ())
        elif isinstance(value, MethodType):
            if depth and isinstance(getattr(value.__self__, "__dict__", None), dict):
                self._add({"of a method": value.__self__}, "of a method", "", depth - 1)
        elif isinstance(value, ModuleType):
            package, file = value.__name__.partition(".")[0], getattr(value, "__file__", None)
            ours = package in _PACKAGES or package in sys.stdlib_module_names - {"__main__"}
            if depth and not ours and not is_library(file or ""):
                names = [n for n, inside in vars(value).items() if self.names.matter(n, inside)]
                self._hold(vars(value), f"{value.__name__}.", names)
                self._add_all(vars(value), names, f"{value.__name__}.", depth - 1)
        elif isinstance(value, type):
            self._add_class(value)

    def _add_structure(
        self, holder: Any, name: Any, value: Any, label: str, *, only_with_tensors: bool = False
    ) -> bool:
        structure = Structure(value, self.names, self._by_identity)
        if only_with_tensors and not structure.tensors and not structure.has_slots():
            return False
        default = isinstance(holder, Scope) and name.startswith("default ")
        if default or isinstance(structure.key, Held):
            self._fix(structure.tensors)
            self._fix_all(structure.held)
            self._value(holder, name, value, label)
            return True
        self._fix_all(structure.held)
        for inner in structure.holders():
            self._hold(inner, f"{label}{name}.")
            if id(inner) not in self.inner:
                direct = inner is value or inner is getattr(value, "__dict__", None)
                self.inner[id(inner)] = (holder, name, value) if direct else None
        self.places.append((holder, name, structure.key, f"{label}{name}"))
        return True

    def _value(self, holder: Any, name: Any, value: Any, label: str) -> None:
        self.values.append((holder, name, value))
        self.labels.append(f"{label}{name}")

    def _fix_all(self, held: Iterable[Any]) -> None:
        """What belongs to those that stand for themselves, such as a model that is an average."""
        for value in held:
            self._fix([value])
            for module in value.modules() if isinstance(value, torch.nn.Module) else ():
                for kind in (module._parameters, module._buffers):
                    for name, tensor in kind.items():
                        if (id(kind), name) not in self._replaced and id(tensor) not in self.fixed:
                            self._value(kind, name, tensor, f"{type(module).__name__}.")
                            self._fix([tensor])

    def _fix(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or id(tensor) in self.fixed:
                continue
            self.fixed[id(tensor)] = tensor
            if isinstance(tensor, Tensor):
                # `p.data = x` and `model.half()` exchange all that a tensor consists of.
                link = tensor.__dict__.setdefault("_link", None)
                self._value(tensor.__dict__, "_link", link, "a parameter's ")
                if link is not None:
                    self._fix([link.parent])

    def _hold(self, holder: Any, label: str, names: list[Any] | None = None) -> None:
        known = self.holders.get(id(holder))
        if known is not None and known[1] is not None and names is not None:
            known[1].extend(names)
        elif known is None or known[1] is not None:
            self.holders[id(holder)] = holder, names, label

    def keep_holder(self, holder: Any) -> bool:
        """Guard the identity of what a step puts something into; False where that can not be."""
        outer = self.inner.get(id(holder), ())
        if outer:
            self._value(*outer, "")
        return outer is not None

    # ---- at every call --------------------------------------------------------------------------

    def changed(self) -> str:
        """The name of what is not as it was, "" where all is."""
        place = -1
        try:
            for place, (holder, name, expected) in enumerate(self.values):
                value = holder[name]
                if value is not expected and not _equal(value, expected):
                    if isinstance(value, torch.Tensor):
                        self._replaced.add((id(holder), name))
                    return self.labels[place]
        except (KeyError, IndexError):
            return self.labels[place]
        for holder, size in self.sizes:
            if len(holder) != size and len(_names(holder)) != size:
                return "an attribute or a hook that is new or gone"
        for holder, names in self.names_held:
            if [*holder] != names and _names(holder) != names:
                return "an attribute or a hook that is new or gone"
        return ""

    def structures(self) -> list[Structure] | str:
        """What stands at the places, or the name of one where something else stands."""
        found = []
        for holder, name, key, label in self.places:
            try:
                structure = Structure(holder[name], self.names, self._by_identity)
            except (KeyError, IndexError):
                return label
            if structure.key != key:
                return label
            found.append(structure)
        return found

    def signature(self) -> tuple[Any, ...]:
        """The present values, for counting how often they were there."""
        values = [holder.get(name) for holder, name, _ in self.values if hasattr(holder, "get")]
        inputs = [Structure(h[n], self.names).key for h, n, *_ in self.places if n in h]
        return tuple(v if is_value(v) else Held(v) for v in values), tuple(inputs)

    # ---- while it is traced ---------------------------------------------------------------------

    def snapshot(self) -> "Snapshot":
        return Snapshot(self.holders.values())


def _names(holder: Any) -> list[Any]:
    return [name for name in holder if name != KEPT]


def _equal(value: Any, expected: Any) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(value, FunctionType):  # made anew by the same code
        return value.__code__ is expected.__code__ and not value.__closure__
    if isinstance(value, set):
        return bool(value == expected)
    if isinstance(value, numpy.ndarray):
        return value.dtype == expected.dtype and numpy.array_equal(value, expected)
    if type(value) in _CONTENTS:
        return len(value) == len(expected) and all(
            is_value(v) and _equal(v, e) for v, e in zip(value, expected, strict=True)
        )
    return is_value(value) and value == expected and repr(value) == repr(expected)


class Snapshot:
    """What the holders hold now, to see what a step changes in them, and to undo it."""

    def __init__(self, holders: Iterable[tuple[Any, list[Any] | None, str]]) -> None:
        self._before: list[tuple[Any, Any, str]] = []
        for holder, names, label in holders:
            if isinstance(holder, Scope):
                holder.refresh()
            if isinstance(holder, list):
                self._before.append((holder, list(holder), label))
            elif names is None:
                self._before.append((holder, dict(holder), label))
            else:
                some = {name: holder.get(name, MISSING) for name in names}
                self._before.append((holder, some, label))
        self._all = {id(holder) for holder, names, _ in holders if names is None}

    def changes(self) -> list[tuple[Any, Any, Any, Any, str]]:
        """What is another object now: holder, name, value before, value now, label."""
        found = []
        for holder, before, label in self._before:
            if isinstance(holder, Scope):
                holder.refresh()
            if isinstance(holder, list):
                if len(holder) != len(before):
                    found.append((holder, len(before), MISSING, holder, label + "append"))
                before = dict(enumerate(before))
                now: dict[Any, Any] = dict(enumerate(holder))
                names = [name for name in before if name in now]
            elif id(holder) in self._all:
                now, names = holder, [*before, *(name for name in holder if name not in before)]
            else:
                now, names = holder, list(before)
            for name in names:
                old, new = before.get(name, MISSING), now.get(name, MISSING)
                if old is not new and not (is_value(old) and _equal(new, old)):
                    found.append((holder, name, old, new, f"{label}{name}"))
        return found

    def restore(self) -> None:
        for holder, before, _ in self._before:
            if isinstance(holder, list):
                holder[:] = before
                continue
            for name in [n for n in holder if n not in before] if id(holder) in self._all else ():
                put(holder, name, MISSING)
            for name, value in before.items():
                if holder.get(name, MISSING) is not value:
                    put(holder, name, value)


def leaked(tracer: Any, older: Iterable[Any]) -> list[Tensor]:
    """Device tensors of the trace of ``tracer``, which has ended, that somebody keeps.

    ``older``: references to tensors that the garbage collector does not look at.
    """
    gc.collect()

    def is_traced(tensor: Tensor) -> bool:
        array = tensor.__dict__.get("_elem")
        return isinstance(array, jax.core.Tracer) and array._trace is tracer._trace

    found = {id(t): t for t in gc.get_objects() if issubclass(type(t), Tensor)}
    with torch._C.DisableTorchFunction():
        found |= {id(t): t for t in (reference() for reference in older) if t is not None}
    tensors = [t for t in found.values() if is_traced(t)]
    # An alias gets its own values again from its base.
    aliases = [t._elem for t in tensors if t.__dict__.get("_link") is not None]
    del aliases
    return [t for t in tensors if is_traced(t)]
