"""Program facts: the ranks of the programs for several devices that a file is a part of.

A program is what is imported from a file that starts processes. What is found out about it is kept
for all its files, and in the processes that a run starts.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from migrator.analysis.imported_values import ImportedValues
from migrator.analysis.ranks import Ranks


class ProgramFacts(ImportedValues):
    """The ranks of the programs that one file is a part of."""

    def find_program(self) -> None:
        """Find out all that is asked of the programs of this file."""
        self.only_infers()
        for path, ranks in self.distributed_program().items():
            self.obstacle(path, ranks)

    def distributed_program(self) -> dict[Path, Ranks]:
        """The files of the programs for several devices that this file is a part of."""
        known = self.cache.programs.get(self.path)
        if known is None:
            speaking = filter(self.cache.speaks_of_ranks, self._files_with_ranks())
            facts = {path: self.cache.facts(path) for path in speaking}
            known = {path: found.ranks for path, found in facts.items() if found is not None}
            self.cache.programs[self.path] = known
        return known

    def only_infers(self) -> bool:
        """True where nothing in these programs trains, nor in others that share their files."""
        program = frozenset(self._files_with_ranks())
        known = self.cache.only_infer.get(program)
        if known is None:
            files = set(program)
            for path in filter(self.cache.takes_part, program):
                files.update(self.of(path)._files_with_ranks())
            found = [self.cache.file(path) for path in files]
            known = any(f.infers for f in found) and not any(f.may_train for f in found)
            self.cache.only_infer[program] = known
        return known

    def _files_with_ranks(self) -> Sequence[Path]:
        """All files of the programs for several devices that this file is a part of.

        These are the files that it imports; and, if it has to do with ranks itself or imports what
        starts them, the programs that import it, with what they import.
        """
        known = self.cache.files_with_ranks.get(self.path)
        if known is None:
            files = [self.path, *self.reached()]
            if self.cache.takes_part(self.path) or any(map(self.cache.distributes, files)):
                for importer in self.importers_above():
                    files += [importer, *self.reached(importer)]
            starts = any(map(self.cache.distributes, files))
            known = self.cache.files_with_ranks[self.path] = (
                [*dict.fromkeys(files)] if starts else []
            )
        return known

    def obstacle(self, path: Path, ranks: Ranks) -> tuple[int, str] | None:
        """What keeps one process from taking the place of the ranks, in one file of a program."""
        if path not in self.cache.obstacles:
            there = self.of(path)

            def definition(function: str) -> ast.AST | None:
                found = there.definition(function)
                return found[2] if found is not None else None

            self.cache.obstacles[path] = ranks.obstacle(definition)
        return self.cache.obstacles[path]

    def serves_ranks(self) -> bool:
        """True for a file that a program for several devices imports."""
        return any(map(self.cache.distributes, self.importers_above()))
