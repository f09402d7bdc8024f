"""Programs lowered for a TPU: parts of a program differ between platforms.

With TPU_RUNTIME_PROGRAMS=FOLDER, each program that is compiled as a whole is also lowered for a
TPU, which needs no TPU, and written there as StableHLO.
"""

import itertools
import os
import re
from pathlib import Path
from typing import Any

VARIABLE = "TPU_RUNTIME_PROGRAMS"
_numbers = itertools.count()


def named(function: Any, name: str) -> Any:
    """The function, under the name that its program will have."""

    def program(*args: Any) -> Any:
        return function(*args)

    program.__name__ = name
    return program


def compiled(traced: Any, name: str) -> Any:
    """The executable of a traced program."""
    if folder := os.environ.get(VARIABLE):
        number, plain = next(_numbers), re.sub(r"\W", "_", name)
        _write(traced, Path(folder) / f"{number:04}_jit_{plain}_compile.mlir")
    return traced.lower().compile()


def _write(traced: Any, path: Path) -> None:
    try:
        text = traced.lower(lowering_platforms=("tpu",)).as_text(debug_info=True)
    except Exception as error:  # an operator that JAX lacks for TPUs: for whoever reads the file
        first = (str(error).strip().splitlines() or [""])[0]
        text = f"// cannot be lowered for a TPU: {type(error).__name__}: {first}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
