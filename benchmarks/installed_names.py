"""Write the names that the pinned packages have.

    .venv-torchax/bin/python benchmarks/installed_names.py torch torchvision numpy scipy PIL

`migrator/analysis/installed/` holds one list for each package and version, a module a line. With
`--base torch-2.9.0`, only what differs from that list is written. The tool reads these lists to
report names that do not exist; it never imports the packages.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "migrator" / "analysis" / "installed"
DISTRIBUTIONS = {"PIL": "pillow"}
# Modules of the packages' own tests and back ends, and those that old programs took from anyway.
SKIPPED = (".src", ".tests", ".testing._", "torch.onnx._", ".conftest", ".f2py.", "numpy.distutils")
PRIVATE = ("torch._utils", "torch._jit_internal", "torch.utils.data._utils",
           "torch.nn.parallel._functions", "torchvision.models._utils")  # fmt: skip
# What a module's __getattr__ still gives, and dir() does not list. Other modules with a __getattr__
# are left out: they may have more names.
LAZY = {
    "torch": {"has_mps", "has_cuda", "has_cudnn", "has_mkldnn"}, "numpy": set(), "scipy": set(),
    "pandas": set(), "PIL.Image": set(),
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("packages", nargs="+")
    options.add_argument("--base", default="", help="a list that this one differs from little")
    asked = options.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    warnings.simplefilter("ignore")
    FOLDER.mkdir(exist_ok=True)
    for package in asked.packages:
        number = version(DISTRIBUTIONS.get(package, package))
        lines = dict(listed(package))
        if package == "keras":  # what TensorFlow has of it
            own = "keras._tf_keras.keras"
            lines |= {f"tensorflow.keras{m.removeprefix(own)}": n for m, n in listed(own)}
        if asked.base:
            lines = dict(_changes(FOLDER / f"{asked.base}.txt", lines))
        head = [f"= {asked.base}"] if asked.base else []
        text = [f"{module} {names}".rstrip() for module, names in sorted(lines.items())]
        path = FOLDER / f"{package}-{number}.txt"
        path.write_text("\n".join([*head, *text]) + "\n", encoding="utf-8")
        print(path.name, len(text), "modules", path.stat().st_size, "bytes", file=sys.stderr)


def _changes(base: Path, lines: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What differs from another list: `+new -gone` names of a module, none for one not listed."""
    for line in base.read_text(encoding="utf-8").splitlines():
        module, _, before = line.partition(" ")
        if module not in lines:
            yield module, ""
            continue
        old, new = set(before.split()), set(lines.pop(module).split())
        if old != new:
            yield module, " ".join([*(f"+{n}" for n in sorted(new - old)),
                                    *(f"-{n}" for n in sorted(old - new))])  # fmt: skip
    yield from ((m, " ".join(f"+{n}" for n in names.split())) for m, names in lines.items())


def listed(name: str) -> Iterator[tuple[str, str]]:
    """The modules of a package, each with its names; those that can't be imported are left out."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}", file=sys.stderr)
        return
    inner: list[str] = []
    if hasattr(module, "__path__"):
        inner = [info.name for info in pkgutil.iter_modules(module.__path__)]
    is_open = "__getattr__" in vars(module) and name not in LAZY
    if type(module) is types.ModuleType and not is_open:
        names = {*dir(module), *inner, *LAZY.get(name, ())}
        yield name, " ".join(sorted(n for n in names if not n.startswith("__")))
    for each in inner:
        full = f"{name}.{each}"
        private = each.startswith("_") and not full.startswith(PRIVATE)
        if not private and not any(part in full for part in SKIPPED):
            yield from listed(full)


if __name__ == "__main__":
    main()
