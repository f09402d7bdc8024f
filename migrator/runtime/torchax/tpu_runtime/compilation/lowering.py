"""Programs lowered for a TPU: parts of a program differ between platforms.

With TPU_RUNTIME_PROGRAMS=FOLDER, each program that is compiled as a whole is also lowered for a
TPU, which needs no TPU, and written there as StableHLO; what its arrays are for, beside it as
JSON. With TPU_RUNTIME_COMPUTE=off, none is compiled or run here: its results are zeros.
"""

import functools
import itertools
import json
import math
import mmap
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy

COMPUTE = "TPU_RUNTIME_COMPUTE"
VARIABLE = "TPU_RUNTIME_PROGRAMS"
_numbers = itertools.count()
runs: Counter[str] = Counter()  # of recorded programs, by their files
_LARGE = 2**20  # bytes


def with_program_name(function: Any, name: str) -> Any:
    """The function, under the name that its program will have."""

    def program(*args: Any) -> Any:
        return function(*args)

    program.__name__ = name
    return program


def compiled(traced: Any, name: str, owners: Callable[[], Any] | None = None) -> Any:
    """The executable of a traced program; ``owners``: of its arrays, for its file. The runs of one
    with owners are counted."""
    file = ""
    if folder := os.environ.get(VARIABLE):
        number, plain = next(_numbers), re.sub(r"\W", "_", name)
        path = Path(folder) / f"{number:04}_jit_{plain}_compile.mlir"
        _write(traced, path)
        if owners is not None:
            file = path.name
            path.with_suffix(".json").write_text(json.dumps(owners()), encoding="utf-8")
    if os.environ.get(COMPUTE) == "off":
        run = functools.partial(_zeros, traced.out_info)
    else:
        run = traced.lower().compile(compiler_options=compiler_options())
    return _counted(run, file) if file else run


def _counted(run: Callable[..., Any], file: str) -> Callable[..., Any]:
    def counted(*given: Any) -> Any:
        runs[file] += 1
        return run(*given)

    return counted


def _zeros(results: Any, *given: Any) -> Any:
    """In the place of a program's results: zeros, divided as inputs of the same shape are.

    Large ones take no memory: nothing writes to the pages that they are mapped to.
    """
    arrays = [x for x in jax.tree.leaves(given) if isinstance(x, jax.Array)]
    places = {(array.shape, array.dtype): array.sharding for array in arrays}

    def zeros(form: Any) -> Any:
        place = places.get((form.shape, form.dtype))
        size = math.prod(form.shape) * form.dtype.itemsize
        if size < _LARGE or (place is not None and len(place.device_set) > 1):
            return jnp.zeros(form.shape, form.dtype, device=place)
        untouched = numpy.frombuffer(mmap.mmap(-1, size), form.dtype).reshape(form.shape)
        return jax.device_put(untouched, place, may_alias=True)

    return jax.tree.map(zeros, results)


# JAX 0.10.2 on a CPU: fusions for a library of kernels read memory that nothing has written, where
# all that they take is constant, such as scores of `torch.zeros` and `torch.ones`: the result is
# NaN, or anything. Products and convolutions by themselves are right.
_ON_CPU: dict[str, str | bool] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,"
    "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
}


@functools.cache
def compiler_options() -> dict[str, str | bool] | None:
    """Options for the compiler; None where it doesn't have them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x).lower(1.0).compile(compiler_options=_ON_CPU)
    except Exception:  # another version of JAX
        return None
    return _ON_CPU


def _write(traced: Any, path: Path) -> None:
    try:
        text = traced.lower(lowering_platforms=("tpu",)).as_text(debug_info=True)
    except Exception as error:  # an operator that JAX lacks for TPUs: for whoever reads the file
        first = (str(error).strip().splitlines() or [""])[0]
        text = f"// cannot be lowered for a TPU: {type(error).__name__}: {first}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
