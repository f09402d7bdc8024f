"""A framework: what makes a file one of PyTorch's, or of another's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct

if TYPE_CHECKING:
    from migrator.analysis.project.facts import ProjectFacts


@dataclass(frozen=True)
class ModuleView:
    """What a framework may look at in a module."""

    names: Names
    flow: Flow
    vocabulary: Vocabulary  # the names that its rules are about, and those of the project's table
    package: str = ""  # that the module is in, from where relative imports lead
    project: ProjectFacts | None = None
    ranks: Ranks | None = None  # what it does with them, where that is known


@dataclass(frozen=True)
class Framework:
    """A folder below `migrator/frameworks`, or a plug-in; rules and targets say which they are of.

    Names are constructs where a rule is about them (`migrator.frameworks.by_name`). What else is
    one, its `constructs` finds, in the order of the source, outer before inner.
    """

    name: str
    module: str  # behind whose import new ones go; `{<module>}` in a target's words
    packages: tuple[str, ...]  # where its names come from, `module` among them
    constructs: Callable[[ModuleView], list[Construct]]
    # A cheap test of a file's bytes: False where it holds none but for names of rules.
    has_tokens: Callable[[bytes], bool]
    uses_device: Callable[[Construct], bool]  # whether a construct shows that its file does
    # Whether a line of a file that is no Python may hold a construct, by its function and text.
    says: Callable[[str, str], bool] = lambda *_: True
    # Libraries for its GPUs alone: where their import may fail, nothing is lost without them.
    libraries: tuple[str, ...] = ()
    # Names, methods and arguments of rules that `constructs` finds by more than their name.
    by_shape: frozenset[str] = frozenset()
    # Whether code for other accelerators, and for other targets, is read as its GPU code.
    normalised: bool = False
    # The folder in migrator/verify/recorder that records its programs, and what that imports.
    recorder: str = ""
    follows_operations: bool = True  # what records them sees single operations, and ranks
    recorder_imports: tuple[str, ...] = ()

    def is_imported_in(self, source: bytes) -> bool:
        """Whether a file imports it, by its words."""
        return self._import.search(source) is not None

    @cached_property
    def _import(self) -> re.Pattern[bytes]:
        named = "|".join(map(re.escape, self.packages))
        return re.compile(rf"^\s*(?:from|import)\s+(?:{named})\b".encode(), re.MULTILINE)
