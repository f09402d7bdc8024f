"""Ranks: how a program that starts one process per device uses their number and its own rank.

On a target where one process drives all devices, data are those of all ranks together, and values
computed from them are what the ranks would agree on. So a number of ranks keeps its meaning in a
program's configuration (a batch size, a learning rate), and is 1 where it undoes a sum over ranks.
Anything unclear, or that only a separate process can do, is an obstacle.
"""

from __future__ import annotations

import ast
from functools import cached_property

from migrator.analysis.ranks.launcher_guards import Launched
from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.ranks.rank_obstacles import Obstacles
from migrator.analysis.ranks.started_processes import asks_other_launcher


class Ranks(RankExpressions):
    """The ranks of one file."""

    @cached_property
    def ask_other_launcher(self) -> bool:
        """Whether the file gets its rank from Slurm or MPI."""
        nodes = (*(node for node, _ in self.names.meant), *self.names.all(ast.Constant))
        return any(asks_other_launcher(self.names, node) for node in nodes)

    @cached_property
    def launched(self) -> Launched:
        """Whether a launcher may start the file, and which of its code needs one."""
        return Launched(self)

    @cached_property
    def obstacles(self) -> Obstacles:
        """What prevents another way to start them, or one process for all."""
        return Obstacles(self)
