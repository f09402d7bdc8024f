"""Files between the stages: one line where one can not be read, and none that is half written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file


@contextmanager
def reading(path: Path, made_by: str) -> Iterator[None]:
    """Whatever is wrong with ``path`` ends the program: one line, exit code 2."""
    try:
        yield
    except FileNotFoundError:
        _end(f"{path} is missing: run {made_by} first")
    except SafetensorError as error:
        _end(f"{path} is damaged ({error}): run {made_by} again")
    except (KeyError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        _end(f"{path} does not fit: {' '.join(lines[:2])} (made by {made_by})")


def _end(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write safetensors under a passing name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file(tensors, part)
    part.replace(path)
