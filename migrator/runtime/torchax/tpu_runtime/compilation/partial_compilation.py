"""Modules and optimizers that are used outside of a compiled step, as programs of their own.

The outermost call of a module on the device is one program for each set of shapes: new weights,
another mode, statistics, random numbers and hooks take effect. It is one from the first call on if
its code only computes (first_call.py), and otherwise from the second.
Evaluation, sampling and generation call it without gradients; with gradients its backward pass is a
second program (differentiation.py). The same holds for `optimizer.step()` and `clip_grad_norm_`.
Those of a step are recorded, and become one program (lazy_graph.py). What can't be compiled runs as
it is, with one warning for each class; the modules in it are then tried.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from jax._src.core import trace_state_clean
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils import _pytree as pytree
from torchax.tensor import Environment

from ..dispatch import modes
from ..dispatch.calls import holds_device_tensor, is_device_tensor, natively, patch
from ..lazy import lazy_graph
from ..profiling import module_scopes, reads_in_steps
from . import guard_skipping
from .build_program import compile_program
from .compile_state import FirstTime, NotCompilable, is_eager, is_inside
from .compiled_function import MANY, UNUSED, Compiled, warn
from .compiled_program import Program
from .first_call import compile_new
from .function_state import CallArguments
from .initial_optimizer_state import is_known
from .program_code import is_library
from .purity import Inspection
from .state_guards import KEPT

_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
_told: set[tuple[type, str]] = set()


class CompiledMethod(Compiled):
    """A method of a module or an optimizer; ``manner`` is how it runs."""

    hurries = False  # whether a new form is compiled at once, if the code has run in another
    trusts = False  # whether code of transformers is compiled before it has run once

    def __init__(
        self, owner: Any, call: Callable[..., Any], manner: str, *, differentiable: bool = False
    ) -> None:
        self._manner = manner
        self._kind = type(owner), manner
        name, function = type(owner).__name__, MethodType(call, owner)
        super().__init__(function, name, differentiable=differentiable)
        # Each evaluation of a model is a program, also each token of `generate`.
        evaluates = isinstance(owner, torch.nn.Module) and not differentiable
        self._evaluated = owner if evaluates else None

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._evaluated is not None and not is_inside():
            lazy_graph.evaluate(self._evaluated)
        return super().__call__(function, args, kwargs)

    def _first(self, env: Environment, call: CallArguments, args: Any, kwargs: Any) -> Any:
        """Record which of its results have gradients then, to compile a backward pass for those."""
        result = super()._first(env, call, args, kwargs)
        if self.memory.differentiable:
            tensors = (x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor))
            with_graph = {id(x): x for x in tensors if x.grad_fn is not None}
            for number, tensor in enumerate(with_graph.values()):
                tensor.register_hook(functools.partial(_note, self.memory.used, number))
        return result

    def _has_to_wait(self) -> bool:
        if self._varying.are_there:  # their results are compared
            return True
        if self.hurries and self.sets:
            return self.unused >= UNUSED
        had_to_run = self.sets > self.compilations
        return had_to_run or self.unused >= MANY or not Inspection.is_possible()

    def _compile_new(self, env: Environment, call: CallArguments) -> Program:
        """Compile a form that has not run, if nothing can be missed; otherwise FirstTime."""
        if self.hurries and self.sets:
            return compile_program(self.memory, env, call)
        owner = self.memory.function.__self__  # type: ignore[attr-defined]
        if not (self.trusts and _only_computes(owner)):
            return compile_new(self.memory, env, call)
        self.memory.trainers.take([owner])
        try:
            return compile_program(self.memory, env, call)
        except NotCompilable as why:
            raise FirstTime from why

    def _place(self) -> str:
        return f"{self.name}{self._manner}"

    def _give_up(self, why: str) -> None:
        self.why_eager = self.record.why_eager = why
        if self._kind not in _told:
            _told.add(self._kind)
            warn(f"{self._place()} is not compiled as a whole, either: {why}")


def _note(used: set[int], number: int, gradient: torch.Tensor) -> None:
    used.add(number)


def _only_computes(owner: Any) -> bool:
    """Whether all of its code belongs to transformers' models, which have no lasting effects."""
    modules = owner.modules() if isinstance(owner, torch.nn.Module) else [owner]
    return all(
        type(module).__module__.startswith(("torch.nn.", "transformers."))
        and "forward" not in vars(module)
        and not (module._forward_hooks or module._forward_pre_hooks)
        for module in modules
    )


@contextlib.contextmanager
def hurried(trusting: bool = False, alone: bool = False) -> Iterator[None]:
    """Compile a new form at once if its code has run once: it will be used again.

    ``trusting``: the code of transformers' models need not have run. ``alone``: only library
    code runs between two calls.
    """
    before = CompiledMethod.hurries, CompiledMethod.trusts
    CompiledMethod.hurries, CompiledMethod.trusts = True, trusting
    try:
        with guard_skipping.skipping_guards(alone):
            yield
    finally:
        CompiledMethod.hurries, CompiledMethod.trusts = before


class Parts(dict[str, CompiledMethod]):
    """The state kept in a module or an optimizer; a copy of it has none, and a file an empty set,
    which torch can also read with `weights_only`."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner = owner

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> Any:
        return set, ()


def _compiled_method(
    owner: Any, call: Callable[..., Any], manner: str, *, differentiable: bool
) -> CompiledMethod:
    parts = owner.__dict__.get(KEPT)
    if not isinstance(parts, Parts) or parts.owner is not owner:  # copy.copy
        parts = owner.__dict__[KEPT] = Parts(owner)
    if manner not in parts:
        parts[manner] = CompiledMethod(owner, call, manner, differentiable=differentiable)
    return parts[manner]


def _is_worth_it(module: torch.nn.Module) -> bool:
    """Not for a single torch layer, nor for anything that is compiled by other means."""
    if isinstance(module, (torch.jit.ScriptModule, *_WRAPPERS)):
        return False
    layer = type(module).__module__.startswith("torch.nn.") and not module._modules
    return not layer or isinstance(module, torch.nn.RNNBase)


def _is_free() -> bool:
    """Whether it isn't part of a step, of a user's `jax.jit`, or of torch.func; and nothing, like
    torch.utils.checkpoint, observes what is saved for the backward pass, or operators."""
    if (
        is_inside()
        or is_eager()
        or modes.is_watched()
        or torch._C._functorch.peek_interpreter_stack() is not None
    ):
        return False
    is_seen = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    return not is_seen and bool(trace_state_clean())


def _calling(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`Module.__call__`."""

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch._C._is_torch_function_all_disabled():  # between the calls of `generate`
            with guard_skipping.handling_operators():
                return __call__(self, *args, **kwargs)
        if is_inside():
            with module_scopes.scope_of_module(self):
                return stock(self, *args, **kwargs)
        if not _is_free() or not _is_worth_it(self):
            return stock(self, *args, **kwargs)
        if not (holds_device_tensor(args) or holds_device_tensor(kwargs)):
            return stock(self, *args, **kwargs)
        differentiable = torch.is_grad_enabled()
        manner = " with gradients" if differentiable else " without gradients"
        part = _compiled_method(self, stock, manner, differentiable=differentiable)
        return part(part.memory.function, args, kwargs)

    return __call__


def of_model(model: torch.nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose first argument is a model that it calls, as one program with it."""

    def call(**kwargs: Any) -> Any:
        with guard_skipping.handling_operators():
            if not _is_free():
                return function(model, **kwargs)
            part = _compiled_method(
                model, function, f" and {function.__name__}()", differentiable=False
            )
            return part(part.memory.function, (), kwargs)

    return call


def is_outermost() -> bool:
    """Whether nothing, like a recorder, wraps the calls of all modules."""
    code = getattr(torch.nn.Module.__call__, "__code__", None)
    return code is not None and code.co_filename == __file__


def _calls_it_first(optimizer: Optimizer) -> bool:
    """Whether its step starts with a closure's call, which contains Lightning's training step."""
    hooks = _global_optimizer_pre_hooks.values()
    ours = all(hasattr(h, "__code__") and is_library(h.__code__.co_filename) for h in hooks)
    return ours and is_known(optimizer) and not isinstance(optimizer, torch.optim.LBFGS)


def _stepping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """The `step` of its class, as wrapped by `Optimizer.__init__`."""

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = stock(function)

        @functools.wraps(hooked)
        def step(self: Optimizer, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
            parameters = self.param_groups[0]["params"] if self.param_groups else []
            free = _is_free() and torch.is_grad_enabled() and holds_device_tensor(parameters)
            plain = closure is None or _calls_it_first(self)
            if args or kwargs or not free or not plain:
                given = args if closure is None else (closure, *args)
                return hooked(self, *given, **kwargs)
            result = None if closure is None else closure()
            part = _compiled_method(self, hooked, ".step()", differentiable=False)
            part(part.memory.function, (), {})
            lazy_graph.run()
            reads_in_steps.note_step()
            return result

        return step

    return profile_hook_step


def _clip(gradients: list[torch.Tensor], max_norm: float, norm_type: float) -> torch.Tensor:
    """Torch's operations on the gradients, in the same order."""
    with torch.no_grad():
        norm = torch.nn.utils.get_total_norm(gradients, norm_type)
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
    return norm


def _clipping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`clip_grad_norm_`: separate operations on all gradients take longer than the optimizer."""
    compiled = Compiled(_clip, "clip_grad_norm_", is_known=True)

    @functools.wraps(stock)
    def clip_grad_norm_(
        parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        single = isinstance(parameters, torch.Tensor)
        given = [parameters] if single else list(parameters)
        with natively():
            gradients = [p.grad for p in given if p.grad is not None]
            plain = bool(gradients) and all(map(_is_plain_gradient, gradients))
        if not plain or any(args) or any(kwargs.values()) or not _is_free():
            return stock(given or parameters, max_norm, norm_type, *args, **kwargs)  # type: ignore[no-any-return]
        arguments = gradients, float(max_norm), float(norm_type)
        return compiled(_clip, arguments, {})  # type: ignore[no-any-return]

    return clip_grad_norm_


def _is_plain_gradient(gradient: torch.Tensor) -> bool:
    return is_device_tensor(gradient) and not gradient.requires_grad


def _dropping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`zero_grad`: through torchax each of its queries of a parameter takes 20 µs."""

    @functools.wraps(stock)
    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            stock(self, set_to_none)
            return
        with natively():
            for parameter in _parameters(self):
                parameter.grad = None

    return zero_grad


def _parameters(owner: Any) -> Iterator[torch.Tensor]:
    if isinstance(owner, torch.nn.Module):
        return owner.parameters()
    return (parameter for group in owner.param_groups for parameter in group["params"])


def install(env: Environment) -> None:
    """Take over the calls of modules and the steps of optimizers."""
    for kind in (torch.nn.Module, Optimizer):
        patch(kind, zero_grad=_dropping(kind.zero_grad))
    patch(torch.nn.Module, __call__=_calling(torch.nn.Module.__call__))
    clipping = _clipping(torch.nn.utils.clip_grad_norm_)
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        patch(module, clip_grad_norm_=clipping)
    patch(Optimizer, profile_hook_step=staticmethod(_stepping(Optimizer.profile_hook_step)))
