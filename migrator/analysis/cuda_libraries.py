"""Libraries that only exist for CUDA: how they are imported, how they are installed, what instead.

cuda_libraries.json has them all, one a line, each with the page that says so: imports, requirements
and commands are looked up there. An entry's fields are those of `Library`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """Modules, and the packages that bring them (patterns of their names in normal form).

    `kernels`: what is written in it, or is in it alone, has to be written anew. `also_on_cpu`: it
    computes with tensors of the CPU, too, but not with those of a TPU. `of_cuda`: False for a part
    of CUDA itself, and for what brings another accelerator.
    """

    modules: tuple[str, ...]
    packages: tuple[str, ...]
    advice: str
    source: str
    kernels: bool = False
    also_on_cpu: bool = False
    of_cuda: bool = True

    def reason(self, name: str) -> str:
        """What is said of a package or a module."""
        if self.also_on_cpu:
            both = "it has kernels for CUDA and for the CPU, and none for a TPU"
            return f"{name}: {both}; {self.advice}"
        return f"{name} is for CUDA only: {self.advice}" if self.of_cuda else self.advice


def _read() -> tuple[Library, ...]:
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    lists = ("modules", "packages")
    return tuple(
        Library(**{**row, **{k: tuple(row[k]) for k in lists}}) for row in json.loads(text)
    )


LIBRARIES = _read()
MODULES = {module: each for each in LIBRARIES for module in each.modules}
HEADS = frozenset(module.partition(".")[0].encode() for module in MODULES)


@cache
def _packages() -> list[tuple[re.Pattern[str], Library]]:
    return [(re.compile("|".join(each.packages)), each) for each in LIBRARIES if each.packages]


@cache
def mentioned() -> re.Pattern[str]:
    """What a line that installs something says of CUDA's packages, or of torch and its company."""
    packages = "|".join(p.replace("-", "[-_.]") for each in LIBRARIES for p in each.packages)
    return re.compile(
        r"torch|cu\d\d|-gpu|cuda|jax|libtpu|cloud-tpu-client|flash-attention|transformerengine"
        rf"|/mamba\b|{packages}",
        re.IGNORECASE,
    )


# A version of what the target's packages need in certain ones.
_BOUNDED = re.compile(r"(?<![\w.-])(?:numpy|scipy)\b[\s\"'(]*[<>=~]")
# An upper bound or a pin of what is built for NumPy, or of a framework.
_OLD = re.compile(
    r"(?<![\w.-])(?:accelerate|diffusers|h5py|lightning|matplotlib|numba|opencv-python(?:-headless)?"
    r"|pandas|peft|scikit-learn|transformers|trl)(?![\w-])[\s\"'(]*(?:<|==|~=|=\s*[\"'][\^~<=\d])"
)


def may_concern_device(text: str) -> bool:
    """A cheap test: False for a line that installs what has nothing to do with the device."""
    return any(pattern.search(text) is not None for pattern in (mentioned(), _BOUNDED, _OLD))


def of_package(name: str) -> Library | None:
    """What only exists for CUDA under a package's name in its normal form; None for others."""
    return next((each for pattern, each in _packages() if pattern.fullmatch(name)), None)
