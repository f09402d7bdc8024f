"""The Python state that a program depends on, besides the call's arguments.

Watching which code runs tells which variables it uses: globals and closures of its functions, and
attributes of the objects and modules whose methods run. Numbers and objects are guarded: a program
fits as long as they don't change. Tensors in variables and attributes are inputs, like arguments,
identified by their place.
"""

import copy
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch
from torch.optim import Optimizer
from torchax.tensor import Tensor

from ..dispatch.calls import is_device_tensor
from ..tensors.structures import Identity, Structure, is_ours, is_value
from .bytecode_names import names_of, union
from .closure_variables import ClosureVariables, get_item
from .program_code import PACKAGES, CodeWatch, is_library
from .stateful_objects import keeps_state
from .undo_log import CONTENTS, Snapshot, equal

_CODE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)
KEPT = "_tpu_runtime_parts"  # where partial_compilation.py keeps what it knows of an owner
_INTERNAL = frozenset({*vars(torch.nn.Module()), KEPT}) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LARGE = 1 << 16  # elements: larger NumPy arrays count by identity
_DEPTH = 3


class StateGuards:
    """What must not change for a program to fit, and the places of its tensors."""

    def __init__(
        self,
        scopes: list[ClosureVariables],
        watch: CodeWatch,
        modules: Iterable[torch.nn.Module],
        optimizers: Iterable[Optimizer],
        replaced: set[tuple[int, Any]],
        by_identity: set[int],
        arguments: Structure | None = None,
    ) -> None:
        self.scopes, self._replaced, self._by_identity = scopes, replaced, by_identity
        self.values: list[tuple[Any, Any, Any]] = []  # holder, name, required value
        self.labels: list[str] = []
        self.stateful = ""  # the name of an object with a state of its own
        self.arrays: list[tuple[Any, Any]] = []  # of NumPy, that are no data, and copies
        self.names_held: list[tuple[Any, list[Any]]] = []  # a holder and all its names
        self.sizes: list[tuple[Any, int]] = []  # a holder and how many names it has
        self.places: list[tuple[Any, Any, Any, str]] = []  # holder, name, key of its structure
        self.fixed: dict[int, torch.Tensor] = {}  # tensors that must stay where they are
        self.on_cpu: list[torch.Tensor] = []  # those on the CPU
        self.holders: dict[int, tuple[Any, list[Any] | None, str]] = {}  # what a step may change
        self.inner: dict[int, tuple[Any, Any, Any] | None] = {}  # holders that may be created anew
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
        if keeps_state(value) and self.names.matter(name, value):
            self.stateful = self.stateful or f"{label}{name}"
        if isinstance(value, (torch.nn.Module, Optimizer)) or is_value(value) or is_ours(value):
            self._value(holder, name, value, label)
            self._fix_all([value])
        elif isinstance(value, _CODE):
            self._value(holder, name, value, label)
            self._look_into_code(value, depth)
        elif type(value) in CONTENTS and all(map(is_value, value)):
            if type(value) is list:
                self._hold(value, f"{label}{name}.")
            self._value(holder, name, copy.copy(value), label)
        elif isinstance(value, numpy.ndarray) and value.size <= _LARGE:
            before = value.copy()
            self.arrays.append((value, before))
            self._value(holder, name, before, label)
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
            scope = ClosureVariables(function)
            self.scopes.append(scope)
        self._hold(scope, "", [n for n in scope if not n.startswith("default ")])
        self._add_all(scope, scope, "", depth)

    def _is_kept_on_cpu(self, holder: Any, name: Any, value: Any) -> bool:
        """Whether it counts as a constant: a CPU tensor that was never replaced by another one."""
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
            ours = package in PACKAGES or package in sys.stdlib_module_names - {"__main__"}
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
        default = isinstance(holder, ClosureVariables) and name.startswith("default ")
        if default or isinstance(structure.key, Identity):
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
        """Guard the tensors of objects that count by identity, such as a model's moving average."""
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
                # `p.data = x` and `model.half()` exchange the whole contents of a tensor.
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
        """Guard the identity of an object that a step stores into; False if that is impossible."""
        outer = self.inner.get(id(holder), ())
        if outer:
            self._value(*outer, "")
        return outer is not None

    # ---- at every call --------------------------------------------------------------------------

    def changed(self) -> str:
        """The name of something that has changed, or ""."""
        place = -1
        try:
            for place, (holder, name, expected) in enumerate(self.values):
                value = holder[name]
                if value is not expected and not equal(value, expected):
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
        """The values at the places, or the name of a place that holds something else."""
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
        """The present values as a key, to count how often they occur."""
        values = [
            get_item(holder, name) for holder, name, _ in self.values if hasattr(holder, "get")
        ]
        inputs = [Structure(h[n], self.names).key for h, n, *_ in self.places if n in h]
        return tuple(v if is_value(v) else Identity(v) for v in values), tuple(inputs)

    # ---- during a trace -------------------------------------------------------------------------

    def snapshot(self) -> "Snapshot":
        return Snapshot(self.holders.values())


def _names(holder: Any) -> list[Any]:
    return [name for name in holder if name != KEPT]
