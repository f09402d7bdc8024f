"""Forms of code that operator_audit.py compares on a target with CPU torch, beside operators.

A form is a line of Python in one of the files of `forms/`. What it leaves in its variables is
compared, and if it is an expression, its value, and the gradients of `x` and `y` (`boxes` and
`others` of torchvision's). It is run with each shape and each dtype of its group. Where torch
raises on the CPU, so must the target.
"""

import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLOATS = ("float32", "float64")
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64",
)  # fmt: skip
MATRIX = (4, 3)
EDGES = (MATRIX, (1, 3), (0, 3), (4, 0))
IMAGES = (2, 3, 8, 10)
SMALL = ((0,), (1,), (), (0, 3), (3, 0), (1, 1))


@dataclass(frozen=True)
class Group:
    """How the lines of one file are run.

    Of the shape and dtype: ``x``, ``y``. Beside them ``i``, ``j`` (two places), ``m`` (a mask of
    ``x``'s shape), ``rows`` (a mask of its first dimension) and ``o`` (empty). Forms of torchvision
    get `images` ``x`` and ``y``, ``d`` (a displacement of their pixels), and boxes (DETECTED).
    """

    shapes: tuple[tuple[int, ...], ...] = (MATRIX,)
    dtypes: tuple[str, ...] = FLOATS
    gradient: bool = True
    large: bool = False  # integers beyond 2**31
    images: bool = False  # numbers of pixels, and boxes in them


GROUPS = {
    "reading": Group(shapes=EDGES),
    "indexing": Group(),
    "three_dimensions": Group(shapes=((3, 3, 4),)),
    "writing": Group(),
    "edge_writing": Group(shapes=EDGES),
    "views": Group(),
    "out": Group(gradient=False),
    "dtypes": Group(dtypes=DTYPES),
    "large_integers": Group(dtypes=("int64",), large=True),
    "few_elements": Group(shapes=SMALL, dtypes=("float32",)),
    "images": Group(shapes=(IMAGES,), dtypes=("float32", "uint8"), images=True),
    "boxes": Group(shapes=(IMAGES,), dtypes=("float32",), images=True),
}


def _by_line() -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for name, group in GROUPS.items():
        if group.images and importlib.util.find_spec("torchvision") is None:
            continue
        lines = Path(__file__).with_name("forms").joinpath(f"{name}.txt").read_text("utf-8")
        for line in lines.splitlines():
            found.setdefault(line, []).append(group)
    return found


FORMS = _by_line()
NAMES = ("x", "y", "i", "j", "m", "rows", "o")
DETECTED = ("d", "boxes", "others", "scores", "labels", "rois")


def inputs(group: Group) -> Iterator[tuple[str, list[Any]]]:
    """(which shape and dtype, the values of NAMES)."""
    import torch

    for shape, name in itertools.product(group.shapes, group.dtypes):
        dtype = getattr(torch, name)
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(shape, generator=generator) * 2 for _ in range(2))
        m = x > 0.3
        if group.images:
            x, y = (torch.rand(shape, generator=generator) for _ in range(2))
            if not dtype.is_floating_point:
                x, y = x * 255, y * 255
        elif group.large:
            x, y = (t.double() * 10**10 for t in (x, y))
        elif dtype.is_complex:
            x, y = torch.complex(x, y), torch.complex(y, x)
        elif dtype == torch.uint8:
            x, y = x.abs(), y.abs()
        rows = torch.tensor([n % 2 == 0 for n in range(shape[0] if shape else 1)])
        x, y = x.to(dtype), y.to(dtype)
        if group.gradient and (dtype.is_floating_point or dtype.is_complex):
            x.requires_grad_()
            y.requires_grad_()
        o = torch.empty(0, dtype=dtype)
        values = [x, y, torch.tensor([2, 0]), torch.tensor([1, 2]), m, rows, o]
        yield f"{name} {shape}:", [*values, *(_detected(generator) if group.images else ())]


def _detected(generator: Any) -> list[Any]:
    """The values of DETECTED: boxes of images of 8 rows and 10 columns, some of which overlap."""
    import torch

    def some(*shape: int) -> Any:
        return torch.rand(shape, generator=generator)

    corners = some(12, 2) * torch.tensor([7.0, 5.0])
    corners[6:] = corners[:6] + some(6, 2)
    both = torch.cat([corners, corners + 1 + 3 * some(12, 2)], 1)
    boxes, others = both.reshape(6, 2, 4).unbind(1)
    rois = torch.cat([torch.tensor([0.0, 1, 1, 0, 1, 0])[:, None], boxes], 1)
    labels = torch.tensor([0, 1, 0, 0, 1, 0])
    return [
        (some(1, 8, 10, 2) - 0.5) / 4,
        boxes.requires_grad_(), others.requires_grad_(), some(6), labels, rois.detach(),
    ]  # fmt: skip


def _of_torchvision() -> dict[str, Any]:
    from torchvision import ops
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as V
    from torchvision.tv_tensors import BoundingBoxFormat

    modes = {mode[0]: getattr(InterpolationMode, mode) for mode in ("BILINEAR", "NEAREST")}
    forms = {f"F_{name}": BoundingBoxFormat[name] for name in ("XYXY", "XYWH", "CXCYWH")}
    return {"ops": ops, "V": V, "C": InterpolationMode.BICUBIC, **modes, **forms}


def run(text: str, values: list[Any]) -> list[Any]:
    """The tensors, and numbers as tensors, that the form leaves."""
    import numpy
    import torch
    import torch.nn.functional as F
    from torch.utils import _pytree as pytree

    variables = dict(zip((*NAMES, *DETECTED), values, strict=False))
    for name in ("x", "y"):
        variables[name] = variables[name].clone()  # leaves cannot be written in place
    given = {"torch": torch, "F": F, "numpy": numpy}
    if len(values) > len(NAMES):
        given |= _of_torchvision()
    scope: dict[str, Any] = given | variables
    try:
        code = compile(text, text, "eval")
    except SyntaxError:
        exec(text, scope)
    else:
        scope["result"] = eval(code, scope)
    kept = {name: value for name, value in scope.items() if name not in given}
    leaves = pytree.tree_leaves({n: v for n, v in kept.items() if not n.startswith("__")})
    return [
        torch.tensor(leaf) if isinstance(leaf, bool | int | float | complex) else leaf
        for leaf in leaves
        if isinstance(leaf, bool | int | float | complex | torch.Tensor)
    ]
