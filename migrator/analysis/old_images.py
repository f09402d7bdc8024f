"""`Normalize` with more numbers than an image has channels: torchvision used the first ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.syntax.scopes import Binding
from migrator.construct import Construct

_NORMALIZE = "torchvision.transforms.Normalize"
# Of black and white images.
_DATASETS = frozenset(
    f"torchvision.datasets.{name}" for name in ("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "USPS")
)
# What leaves an image its channels.
_SAME = frozenset({
    "CenterCrop", "Normalize", "Pad", "RandomAffine", "RandomCrop", "RandomHorizontalFlip",
    "RandomRotation", "RandomVerticalFlip", "Resize", "Scale", "ToTensor",
})  # fmt: skip


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has none."""
    return b"MNIST" in source and b"Normalize" in source


def find(names: Names, call: ast.Call) -> Iterator[Construct]:
    """A `Normalize` for three channels of images that have one, or may have."""
    if names.qualified(call.func) != _NORMALIZE or not any(map(_is_of_several, numbers(call))):
        return
    above = names.parents.get(call)
    composed = names.parents.get(above) if isinstance(above, ast.List | ast.Tuple) else call
    if not isinstance(composed, ast.Call):
        return
    given = [*_given(names, composed)]
    if not any(name in _DATASETS for name in given):
        return
    parts = above.elts if isinstance(above, ast.List | ast.Tuple) else [call]
    known = all(_keeps_channels(names, part) for part in parts)
    is_shown = known and all(name in _DATASETS for name in given)
    yield Construct("changed", "channels" if is_shown else "perhaps channels", call)


def numbers(call: ast.Call) -> list[ast.expr]:
    """The means and the standard deviations."""
    return [v for n, name in enumerate(("mean", "std")) if (v := argument(call, n, name))]


def _is_of_several(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List) and len(value.elts) > 1


def _keeps_channels(names: Names, part: ast.expr) -> bool:
    name = (names.qualified(part.func) or "") if isinstance(part, ast.Call) else ""
    module, _, last = name.rpartition(".")
    return module == "torchvision.transforms" and last in _SAME


def _given(names: Names, transform: ast.Call) -> Iterator[str]:
    """What gets a transform, by their full names; "" for something unknown."""
    parent = names.parents.get(transform)
    uses: list[ast.expr] = [transform]
    if isinstance(parent, ast.Assign):
        match parent.targets:
            case [ast.Name() as target]:
                uses = [*_uses(names, parent, target)]
            case _:
                uses = []
    for use in uses:
        above = names.parents.get(use)
        call = names.parents.get(above) if isinstance(above, ast.keyword) else above
        yield (names.qualified(call.func) or "") if isinstance(call, ast.Call) else ""
    if isinstance(parent, ast.Assign) and len(_bound(names, parent)) > 1:
        yield ""  # other code may read it


def _bound(names: Names, assignment: ast.Assign) -> Sequence[Binding]:
    """The bindings of the name that an assignment binds."""
    match assignment.targets:
        case [ast.Name() as target]:
            return names.scope_of(target).bindings.get(target.id, ())
    return ()


def _uses(names: Names, assignment: ast.Assign, target: ast.Name) -> Iterator[ast.expr]:
    """Where a variable has the value of an assignment; of several, in the block of this one."""
    scope, bound = names.scope_of(target), _bound(names, assignment)
    if len(bound) == 1:
        yield from names.uses(target.id, scope)
        return
    block = names.block(assignment)
    behind = {node for each in block[block.index(assignment) + 1 :] for node in ast.walk(each)}
    if not any(each.node in behind for each in bound):
        yield from (use for use in names.uses(target.id, scope) if use in behind)
