"""The ranks of a script that is verified: how they are started, and their joined recordings.

Each rank is recorded separately (`recorder/recorded_ranks.py`). For the comparison they become one
recording, whose names begin with the rank: "rank 1: Net".
"""

from __future__ import annotations

import ast
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.ranks.vocabulary import BY_LIBRARIES, WRAPPER
from migrator.analysis.syntax.names import Names
from migrator.files.discover import Disk, project_root
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.frameworks.torch.library_classes import LIBRARIES, LibraryClasses

from .safetensors_files import header, read_header

# Calls that join ranks, or that need a library to have joined them.
_JOINS = ("torch.distributed.init_process_group", WRAPPER, *BY_LIBRARIES)
_JOINING = ("accelerator", "trainer", "lightning")  # kinds of library classes that train
_STARTS = ("torch.multiprocessing.", "multiprocessing.")
_RANKS, _ANY = (".spawn", ".start_processes"), ".Process"  # functions that start ranks
_TOLD = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}  # variables set by torchrun
_DATA = 2**22  # number of bytes copied at a time


@dataclass(frozen=True)
class StartedRanks:
    """How many ranks there are, and who starts them: torchrun (``launched``), or the script
    itself."""

    count: int
    launched: bool

    def command(self, program: Sequence[str]) -> list[str]:
        """Python's arguments that start the ranks, in place of those for a single process."""
        if not self.launched:
            return [*program]
        nproc = f"--nproc-per-node={self.count}"
        # Without "--", a program's option such as --logs would be read as --logs-specs.
        return ["-m", "torch.distributed.run", "--standalone", nproc, "--", *program]


def find_ranks(script: Path, folder: Path, count: int | None) -> StartedRanks | None:
    """The ranks of a script on so many devices; None without a process group.

    ``folder``: the one it runs in, whose modules it may import.
    """
    if count is None:
        return None
    reader = Disk({})
    cache = ProjectCache(reader, DEVICE_CONSTRUCTS)
    root = project_root(script.resolve(), [folder.resolve()])
    project = ProjectFacts(script.resolve(), root, reader, cache)
    paths = [project.path, *project.reached()]
    files = [cache.facts(path) for path in paths if cache.speaks_of_ranks(path)]
    called = {name for facts in files if facts is not None for name in _called(facts.names)}
    if called.isdisjoint(_JOINS) and not any(_joins_by_library(path, project) for path in paths):
        return None
    started = {name for name in called if name.startswith(_STARTS)}
    if any(name.endswith(_RANKS) for name in started):
        return StartedRanks(count, launched=False)
    told = any(facts is not None and _is_told(facts.names) for facts in files)
    return StartedRanks(count, launched=told or not any(name.endswith(_ANY) for name in started))


def _joins_by_library(path: Path, project: ProjectFacts) -> bool:
    """Whether a file creates an object that joins a launcher's ranks: an Accelerator, a Trainer."""
    if LIBRARIES.isdisjoint(project.cache.file(path).libraries):
        return False
    facts = project.cache.facts(path)
    if facts is None:
        return False
    classes = LibraryClasses(facts.names, project)
    calls = (node.func for node in facts.names.all(ast.Call))
    made = map(classes.made_by, calls)
    return any(each is not None and each.kind in _JOINING for each in made)


def _called(names: Names) -> Iterator[str]:
    for node in names.order:
        if isinstance(node, ast.Call) and (name := names.qualified(node.func)):
            yield name


def _is_told(names: Names) -> bool:
    """Whether a file reads torchrun's variables; one that starts ranks itself may set them."""
    for node in names.order:
        if isinstance(node, ast.Constant) and node.value in _TOLD:
            above = names.parents.get(node)
            if not (isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Store)):
                return True
    return False


@dataclass(frozen=True)
class RankRecording:
    """What one process recorded: its table, and the folder of its tensors."""

    folder: Path
    table: Mapping[str, Any]

    @property
    def rank(self) -> int | None:
        rank: int | None = self.table.get("rank")
        return rank

    @property
    def title(self) -> str:
        return "" if self.rank is None else f"rank {self.rank}: "


def merged(
    whole: RankRecording | None, parts: Sequence[RankRecording], output: Path, tensors: str
) -> dict[str, Any]:
    """One table, and one file of tensors in ``output``, from all processes of a program.

    ``whole`` is the process that started the others, None for torchrun. ``parts`` that never joined
    a process group are left out, if there are any others. Raises Damaged if tensors can't be read.
    """
    ranks = sorted((p for p in parts if p.rank is not None), key=lambda part: part.rank or 0)
    found = [part for part in (whole, *ranks) if part is not None]
    if not found:  # launched, and all failed before they could join
        found = [min(parts, key=lambda part: part.table.get("ended_at", 0.0))]
    first = (ranks or found)[0].table
    events = [_titled(event, part) for part in found for event in part.table["events"]]
    started = whole.table["processes"] - len(ranks) if whole is not None else 0
    table: dict[str, Any] = {
        **first,
        "ended": _ended(whole, ranks or found),
        "seconds": max(part.table["seconds"] for part in found),
        "events": sorted(events, key=lambda event: event["step"]),  # in the same order
        "files": [file for part in found for file in _files(part)],
        "left_out": [f"{p.title}{name}" for p in found for name in p.table["left_out"]],
        "randomness": {
            kind: sum(part.table["randomness"][kind] for part in found)
            for kind in first["randomness"]
        },
        "steps": max(part.table["steps"] for part in found),
        "processes": started,
        "shortened": any(part.table.get("shortened", False) for part in found),
        "ranks": len(ranks),
    }  # fmt: skip
    for name in ("outside", "devices", "in_parts", "not_copied", "stood_in", "halves"):
        table[name] = [*dict.fromkeys(x for p in ranks or found for x in p.table.get(name, ()))]
    joined = output / f"{tensors}.joined"
    _join_tensors(found, joined, tensors)
    with joined.open("rb") as file:
        table["tensors_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    joined.replace(output / tensors)
    return table


def _ended(whole: RankRecording | None, ranks: Sequence[RankRecording]) -> str:
    """Why it ended too early: the failed rank's reason, not that of ranks ended because of it."""
    failed = [part for part in ranks if part.table["ended"]]
    if failed:
        first = min(failed, key=lambda part: part.table.get("ended_at", 0.0))
        return f"{first.title}{first.table['ended']}"
    return str(whole.table["ended"]) if whole is not None else ""


def _titled(event: Mapping[str, Any], part: RankRecording) -> dict[str, Any]:
    found = {**event, "name": f"{part.title}{event['name']}"}
    if "tensors" in event:
        found["tensors"] = {path: _key(name, part) for path, name in event["tensors"].items()}
    return found


def _files(part: RankRecording) -> Iterator[dict[str, Any]]:
    for file in part.table["files"]:
        tensors = {place: _key(name, part) for place, name in file["tensors"].items()}
        yield {**file, "tensors": tensors}


def _key(name: str, part: RankRecording) -> str:
    return name if part.rank is None else f"{part.rank}.{name}"


def _join_tensors(parts: Sequence[RankRecording], output: Path, name: str) -> None:
    """Join several safetensors files into one."""
    entries: dict[str, dict[str, Any]] = {}
    size = 0
    for part in parts:
        begin = size
        for key, entry in read_header(part.folder / name).items():
            first, last = entry["data_offsets"]
            size = max(size, begin + last)
            entries[_key(key, part)] = {**entry, "data_offsets": [begin + first, begin + last]}
    with output.open("wb") as out:
        out.write(header(entries))
        for part in parts:
            with (part.folder / name).open("rb") as file:
                file.seek(8 + int.from_bytes(file.read(8), "little"))
                shutil.copyfileobj(file, out, _DATA)
