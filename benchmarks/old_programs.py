"""How many programs of old repositories get past their imports under a target's versions.

    .venv-torchax/bin/python benchmarks/old_programs.py CHECKOUTS [--most 6] [--json FILE]

CHECKOUTS has the repositories of benchmarks/old_repositories.txt, one a folder (`owner+name`). Of
each, up to `--most` programs are drawn with a seed: files with a main block, or that parse
arguments. Each is run up to its main block, as it is and after the rules UPG alone, in a process
with this interpreter's torch, torchvision, NumPy, SciPy and Pillow. Packages that are not installed
are replaced by stand-ins that have every name: only what is installed counts. A program starts if
its imports and its top level raise nothing, or it leaves with a usage message; one that runs longer
than the time given is counted apart. For the others, the line that stops them is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import re
import select
import signal
import sys
import tempfile
import traceback
import types
import warnings
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path

from migrator.analysis.upgrade_tables import removed_names
from migrator.config import Config
from migrator.runs.run import migrate_paths

SEED = 72
NO_PROGRAMS = ("test", "setup", "conftest", "__init__", "__main__", "docs")
_OF_ENVIRONMENT = re.compile(r"\(/\S*/(?=site-packages/)")
ENTRY = re.compile(r"^if __name__ *== *|\.parse_args\(|\.parse_known_args\(", re.MULTILINE)
LIBRARIES = (
    "torch", "torch.utils.data", "torch.distributed", "torchvision", "scipy.stats", "PIL.Image",
    "scipy.ndimage", "scipy.spatial", "transformers", "transformers.models.clip.modeling_clip",
)  # fmt: skip
RUNNING = "still running"
GONE = {name for name in removed_names() if "." not in name}


def programs(repository: Path, most: int) -> list[Path]:
    found = []
    for path in sorted(repository.glob("**/*.py")):
        if any(part.startswith(NO_PROGRAMS) for part in path.relative_to(repository).parts):
            continue
        if path.is_file() and ENTRY.search(text := path.read_text(errors="replace")):
            if "torch" in text:
                found.append(path)
    draw = random.Random(f"{SEED} {repository.name}")
    return sorted(draw.sample(found, min(most, len(found))))


class Anything(type):
    """A class that stands for any object of a package that is not installed."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *given: object, **named: object) -> object:
        if len(given) == 1 and not named and callable(given[0]):
            return given[0]  # a decorator
        return Anything("anything", (), {})

    def __ge__(cls, other: object) -> bool:
        return True

    __gt__ = __le__ = __lt__ = __ge__

    def __iter__(cls) -> object:
        return iter(())

    def __getitem__(cls, key: object) -> object:
        return Anything("anything", (), {})

    def __enter__(cls) -> object:
        return cls

    def __exit__(cls, *error: object) -> None:
        return None

    def __mro_entries__(cls, bases: object) -> tuple[type, ...]:
        return (object,)


class StandIns:
    """Finds modules of packages that neither this environment nor the repository has."""

    def __init__(self, own: set[str], repository: Path) -> None:
        self.own, self.repository = own, str(repository)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        head = name.partition(".")[0]
        frame = sys._getframe(1)
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        parent = sys.modules.get(head)
        if parent is not None:
            known = hasattr(parent, "stands_in")
            return ModuleSpec(name, self, is_package=True) if known else None
        asked = frame.f_code.co_filename.startswith(self.repository)
        if not asked and head not in ("tensorboard", "google"):  # for torch.utils.tensorboard
            return None  # an installed package tries it
        if head in sys.stdlib_module_names or head in self.own | GONE:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__.update(stands_in=True, __path__=[], __version__="99.0.0")
        module.__getattr__ = lambda name: getattr(Anything("anything", (), {}), name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def start(program: Path, repository: Path) -> str:
    """Run the top level of a program; the line that stops it, or ""."""
    own = {each.stem for each in repository.glob("**/*.py")}
    own |= {each.name for each in repository.glob("**/") if any(each.glob("*.py"))}
    own |= {p.name for p in repository.glob("**/") if p != repository and any(p.glob("*/*.py"))}
    sys.meta_path.append(StandIns(own, repository))  # type: ignore[arg-type]
    os.chdir(repository)
    sys.path[:0] = [str(program.parent), str(repository)]
    sys.argv = [str(program)]
    spec = importlib.util.spec_from_file_location("entry", program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["entry"] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        return ""
    except SyntaxError as error:
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [f for f in frames if str(repository) in f.filename]
        at = inside[-1] if inside else frames[-1]
        said = str(error).splitlines()[0] if str(error) else ""
        place = os.path.relpath(at.filename, repository)
        said = f"{place}:{at.lineno}: {type(error).__name__}: {said}"
        return _OF_ENVIRONMENT.sub("(", said.replace(f"{repository}/", ""))
    return ""


def in_process(program: Path, repository: Path, seconds: float) -> str:
    """`start` in a fork of this process, whose libraries are imported already."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        said = start(program, repository)
        os.write(write, said.encode()[:2000])
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], seconds)
    said = os.read(read, 4000).decode() if ready else RUNNING
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(read)
    died = ready and not said and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL
    return f"ended by signal {os.WTERMSIG(status)}" if died else said


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("checkouts", type=Path)
    options.add_argument("--target", default="torchax")
    options.add_argument("--most", type=int, default=6)
    options.add_argument("--seconds", type=float, default=120)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    for name in LIBRARIES:  # once, for all forks
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    found = []
    copies = Path(tempfile.mkdtemp(prefix="upgraded-"))
    for repository in sorted(each.resolve() for each in asked.checkouts.iterdir()):
        chosen = programs(repository, asked.most)
        upgraded = copies / repository.name
        config = Config(select=("UPG",))
        migrate_paths([repository], asked.target, config=config, output=upgraded)
        for path in chosen:
            name = path.relative_to(repository)
            row = {
                "program": f"{repository.name}/{name}",
                "before": in_process(path, repository, asked.seconds),
                "after": in_process(upgraded / name, upgraded, asked.seconds),
            }
            found.append(row)
            print(json.dumps(row), flush=True)
    for when in ("before", "after"):
        said = Counter(row[when] if row[when] in ("", RUNNING) else "stops" for row in found)
        print(f"{when}: {len(found)} programs, {said['']} start, {said['stops']} stop, "
              f"{said[RUNNING]} were still running")  # fmt: skip
    if asked.json:
        lines = ",\n".join(json.dumps(row) for row in found)
        asked.json.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
