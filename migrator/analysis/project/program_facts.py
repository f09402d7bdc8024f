"""Program facts: the ranks of the programs for several devices that a file is a part of.

A program is everything imported from a file that starts processes. Its facts are cached for all
its files, also in the processes that a run starts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.analysis.project.imported_values import ImportedValues
from migrator.analysis.project.reachability import Reach
from migrator.analysis.project.starting_points import StartingPoints
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.rank_obstacles import Cause
from migrator.analysis.ranks.unrelated_processes import CONTEXTS, PROCESSES, are_unrelated
from migrator.analysis.ranks.vocabulary import RPC
from migrator.analysis.syntax.names import Names
from migrator.targets.api_map import Devices

_KEPT = 32  # programs of which is known what they reach: a megabyte or two each


class ProgramFacts(ImportedValues, StartingPoints):
    """The ranks of the programs that one file is a part of."""

    def find_program(self, *, in_one_process: bool) -> None:
        """Compute what will be needed of this file's programs."""
        program = self.distributed_program(in_one_process=in_one_process)
        if in_one_process:
            self.only_infers()
            for path, ranks in program.items():
                self.obstacle(path, ranks)

    def distributed_program(self, *, in_one_process: bool) -> dict[Path, Ranks]:
        """The files of the programs for several devices that this file is a part of.

        ``in_one_process``: also those that only matter if one process does the work of all ranks.
        """
        known = self.cache.programs.get((self.path, in_one_process))
        if known is None:
            ranks_of = self.cache.ranks
            found = ((path, ranks_of(path, in_one_process)) for path in self.files_with_ranks())
            known = {path: ranks for path, ranks in found if ranks is not None}
            self.cache.programs[self.path, in_one_process] = known
        return known

    def label(self, path: Path) -> str:
        """The name of a file of these programs, or its path if another one that may concern ranks
        has the same name."""
        others = (p for p in self.files_with_ranks() if p.name == path.name and p != path)
        clashes = any(map(self.cache.speaks_of_ranks, others))
        return path.relative_to(self.root).as_posix() if clashes else path.name

    def only_infers(self) -> bool:
        """True if nothing in these programs trains, nor in others that share their files."""
        program = frozenset(self.files_with_ranks())
        known = self.cache.only_infer.get(program)
        if known is None:
            files = set(program)
            for path in filter(self.cache.takes_part, program):
                files.update(self.of(path).files_with_ranks())
            found = [self.cache.file(path) for path in files]
            known = any(f.infers for f in found) and not any(f.may_train for f in found)
            self.cache.only_infer[program] = known
        return known

    def files_with_ranks(self) -> Sequence[Path]:
        """All files of the programs for several devices that this file is a part of.

        These are the files that it imports; and, if it concerns ranks itself or imports something
        that starts them, the programs that import it, with their imports.
        """
        known = self.cache.files_with_ranks.get(self.path)
        if known is None:
            found = dict.fromkeys([self.path, *self.reached()])
            if self.cache.takes_part(self.path) or any(map(self.cache.distributes, found)):
                for importer in self.importers_above():
                    self._reach_from(importer, found)
            files = [*found]
            known = files if any(self._starts(path, files) for path in files) else []
            self.cache.files_with_ranks[self.path] = known
        return known

    def _starts(self, path: Path, program: Sequence[Path]) -> bool:
        """Whether a file starts a program's processes; RPC counts if the program uses it."""
        facts = self.cache.facts(path) if self.cache.distributes(path) else None
        return facts is not None and any(
            facts.names.qualified(start) != RPC or self._reach(program).reaches(path, start)
            for start in facts.ranks.starts
        )

    def reaches(self, path: Path, node: ast.AST) -> bool:
        """Whether the programs of this file reach a node in one of their files."""
        if self.cache.last_reaches is None or self.cache.last_reaches[0] != self.path:
            # What a part of them reaches, they do, and it is a part of other files' programs, too.
            parts = self._reach(self._largest_part()), self._reach(self.files_with_ranks())
            self.cache.last_reaches = self.path, *parts
        _, part, whole = self.cache.last_reaches
        return (part.holds(path) and part.reaches(path, node)) or whole.reaches(path, node)

    def is_reached(self, node: ast.AST) -> bool:
        """Whether a program that this file is a part of reaches a node in it, by its defaults."""
        found = dict.fromkeys([self.path, *self.reached()])
        for importer in self.importers_above():
            self._reach_from(importer, found)
        return self._reach([*found]).reaches(self.path, node)

    def _largest_part(self) -> Sequence[Path]:
        """The most that one of the other files of these programs imports, with that file."""
        program = self.files_with_ranks()
        others = (path for path in program if path != self.path)
        start = max(others, key=lambda path: len(self.reached(path)), default=None)
        return [start, *self.reached(start)] if start is not None else []

    def code_reaches(self, path: Path, node: ast.AST) -> bool:
        """Whether code of this file, with any options, reaches a node in one that it imports."""
        if self.path not in self.cache.code_reaches:
            self.cache.code_reaches[self.path] = Reach(
                [self.path, *self.reached()],
                self.cache.places,
                lambda path: path == self.path or self._is_started_or_named(path),
                lambda path, name: self.of(path).holds(name),
                with_options=True,
            )
        return self.cache.code_reaches[self.path].reaches(path, node)

    def reaches_device(self) -> bool:
        """Whether code of this file, with any options, reaches code of another that uses a
        device."""
        return any(
            self.code_reaches(path, node)
            for path in self.reached()
            for node in self._device_uses(path)
        )

    def _device_uses(self, path: Path) -> Sequence[ast.AST]:
        facts = self.cache.facts(path) if self.cache.uses_device(path) else None
        uses = facts.device_uses if facts is not None else ()
        if uses or not self.takes_gpu(path=path) or not self.gives_gpu():
            return uses
        return self.cache.file(path).taken_devices

    def _is_started_or_named(self, path: Path) -> bool:
        """Whether code of a file is called by what isn't code."""
        return path in self.cache.named_by_settings or self.of(path).is_started()

    def _reach(self, files: Sequence[Path]) -> Reach:
        """A test that imports a file isn't one of its programs."""
        is_test = self.cache.places.is_test
        files = [p for p in files if not is_test(p) or p == self.path]
        asked = frozenset(files)
        known = self.cache.reaches.pop(asked, None) or Reach(
            files,
            self.cache.places,
            self._is_started_or_named,
            lambda path, name: self.of(path).holds(name),
        )
        self.cache.reaches[asked] = known  # the last one that was asked
        if len(self.cache.reaches) > _KEPT:
            self.cache.reaches.pop(next(iter(self.cache.reaches))).forget()
        return known

    def obstacle(self, path: Path, ranks: Ranks) -> tuple[int, str] | None:
        """What keeps one process from replacing the ranks, in one file of a program."""
        if path not in self.cache.obstacles:
            there = self.of(path)

            def definition(function: str) -> ast.AST | None:
                found = there.definition(function)
                return found[2] if found is not None else None

            self.cache.obstacles[path] = ranks.obstacles.to_one_process(definition)
        return self.cache.obstacles[path]

    def in_the_way(self, path: Path | None, ranks: Ranks, *, devices: Devices) -> Sequence[Cause]:
        """What keeps a target from starting the ranks in a file of a program (None: this file)."""
        found = ranks.obstacles.to_launch(devices=devices)
        there = path or self.path
        return [cause for cause in found if not self._is_beside_ranks(there, ranks, cause[0])]

    def _is_beside_ranks(self, path: Path, ranks: Ranks, node: ast.expr) -> bool:
        """Whether it starts processes that join no ranks, by all files of the program."""
        if ranks.names.qualified(node) not in (*PROCESSES, *CONTEXTS):
            return False
        files = dict.fromkeys([path, *self.files_with_ranks()])
        places = [self.cache.places.of(each) for each in files]

        def find(name: str) -> Iterator[tuple[Names, ast.AST]]:
            for place in places:
                if name in place.index.definitions and place.file.facts is not None:
                    for made in place.index.definitions[name]:
                        yield place.file.facts.names, made

        return are_unrelated(ranks.names, node, find)

    def is_asked_for(self, setting: str) -> bool:
        """True if a program beside a configuration or above it reads a key: `opt["gpus"]`."""
        key = setting.encode()
        asks = re.compile(rb"""["']%b["']|\.%b\b""" % (key, key))
        programs = (self.cache.file(p) for p in self.modules_around() if p != self.path)
        return any(key in each.content and asks.search(each.content) for each in programs)

    def serves_ranks(self) -> bool:
        """True for a file that a program for several devices imports; it may read a setting."""
        is_code = self.path.suffix in (".py", ".ipynb")
        programs = self.importers_above() if is_code else self.modules_around()
        return any(map(self.cache.distributes, programs))
