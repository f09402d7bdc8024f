"""Other calls of an operator: from a sample of torch's database, those that programs write as well.

The database mostly counts dimensions from the front, passes by position what comes first in a
signature, and has tensors in one piece of memory, with elements. What torch refuses for a variant,
audit_samples.py leaves out.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

AS_GIVEN = "as given"
NEGATIVE, KEYWORDS, NUMBER, EMPTY, STRIDED = VARIANTS = (
    "negative dimensions",
    "keywords",
    "no dimensions",
    "no elements",
    "not contiguous",
)
# Arguments that count dimensions; or whose names begin with one of the second.
_DIMENSIONS = ("source", "destination", "start_dim", "end_dim")
_BEGIN = ("dim", "axis", "axes")
# Without elements or dimensions, torch's CPU operators end the process, give another shape, or
# return memory that nothing wrote.
_UNDEFINED = (
    "native_batch_norm", "_native_batch_norm_legit", "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss", "nn.functional.pixel_unshuffle", "cholesky", "resize_",
    "_chunk_cat", "_segment_reduce", "nn.functional.pdist",
)  # fmt: skip
_NEW = ("unsqueeze", "stack", "expand_dims")  # the dimension is one of the result


def _signatures(op: Any, function: Callable[..., Any]) -> Iterator[list[str]]:
    """The names of the parameters: as Python has them, and of each overload of what is in C++."""
    import torch

    with contextlib.suppress(TypeError, ValueError):
        yield [*inspect.signature(function).parameters]
    short = op.name.removeprefix("nn.functional.")
    for name in (op.name.replace(".", "_"), short, short.replace(".", "_")):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            arguments = getattr(packet, overload)._schema.arguments
            yield [a.name for a in arguments if not a.is_out]


def _tree_of_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def changed(tensor: Any) -> Any:
        return function(tensor.detach()).requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, changed, value)


def _with(sample: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    made = copy(sample)
    made.input, *args = arguments
    made.args, made.kwargs = tuple(args), keywords
    return made


def _counts_dimensions(name: str) -> bool:
    return name in _DIMENSIONS or name.startswith(_BEGIN)


def _each_dimension(change: Callable[[int], int], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_each_dimension(change, one) for one in value)
    return change(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _with_dimensions(sample: Any, names: list[str], change: Callable[[int], int]) -> Any:
    """The sample with other dimensions; None if it has none."""
    found = False

    def changed(name: str, value: Any) -> Any:
        nonlocal found
        if not _counts_dimensions(name):
            return value
        if isinstance(value, (int, list, tuple)):
            made = _each_dimension(change, value)
            found = found or made != value
            return made
        return value

    values = (sample.input, *sample.args)
    arguments = [changed(*pair) for pair in zip(names, values, strict=False)]
    keywords = {name: changed(name, value) for name, value in sample.kwargs.items()}
    return _with(sample, (*arguments, *values[len(arguments) :]), keywords) if found else None


def _negative(sample: Any, op: Any, function: Callable[..., Any]) -> Iterator[Any]:
    first = sample.input[0] if isinstance(sample.input, (list, tuple)) else sample.input
    count = first.dim() + op.name.endswith(_NEW)
    for names in _signatures(op, function) if op.name != "tile" else ():
        made = _with_dimensions(sample, names, lambda n: n - count if 0 <= n < count else n)
        if made is not None:
            yield made


def _keywords(sample: Any, op: Any, function: Callable[..., Any]) -> Iterator[Any]:
    for names in _signatures(op, function) if sample.args else ():
        given = dict(zip(names[1:], sample.args, strict=False))
        if len(given) == len(sample.args):
            yield _with(sample, (sample.input,), {**given, **sample.kwargs})


def _number(sample: Any, op: Any, function: Callable[..., Any]) -> Iterator[Any]:
    def first(tensor: Any) -> Any:
        return (tensor.reshape(-1)[0] if tensor.numel() else tensor.new_ones(())).clone()

    values = _tree_of_tensors(first, ((sample.input, *sample.args), sample.kwargs))
    made = _with(sample, *values)
    for names in _signatures(op, function):
        yield _with_dimensions(made, names, lambda _: -1) or made


def _empty(sample: Any, op: Any, function: Callable[..., Any]) -> Iterator[Any]:
    """Nothing along the first dimension, wherever a tensor has as many rows as the input."""
    first = sample.input[0] if isinstance(sample.input, (list, tuple)) else sample.input
    if not first.dim() or not first.numel():
        return
    rows = first.shape[0]

    def none(tensor: Any) -> Any:
        return (tensor[:0] if tensor.dim() and tensor.shape[0] == rows else tensor).clone()

    yield _with(sample, *_tree_of_tensors(none, ((sample.input, *sample.args), sample.kwargs)))


def variants(op: Any, function: Callable[..., Any], sample: Any) -> Iterator[tuple[str, Any]]:
    """(which, another sample) for each that may be called; several of a kind are alternatives."""
    import torch

    tensors = sample.input if isinstance(sample.input, (list, tuple)) else [sample.input]
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return
    makers = {NEGATIVE: _negative, KEYWORDS: _keywords}
    if op.name not in _UNDEFINED:
        makers |= {NUMBER: _number, EMPTY: _empty}
    for which, make in makers.items():
        for made in make(sample, op, function):
            yield which, made
    if any(tensor.dim() for tensor in tensors):
        yield STRIDED, sample


def strided(leaf: Any) -> Any:
    """The values of a tensor, two elements apart in memory."""
    import torch

    if not isinstance(leaf, torch.Tensor) or not leaf.dim():
        return leaf
    return torch.stack([leaf, leaf], -1)[..., 0]
