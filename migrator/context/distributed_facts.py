"""The processes (ranks) of a file's program."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.rank_obstacles import Cause
from migrator.analysis.training.find_optimizer_steps import speaks_of_training, stops_gradients
from migrator.context.task import Task
from migrator.decision import Obstacle


class DistributedFacts:
    """The processes (ranks) of a file's program."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @cached_property
    def own_ranks(self) -> Ranks:
        """The ranks of this file."""
        return Ranks(self._task.names, self._task.flow)

    @cached_property
    def ranks(self) -> Mapping[Path | None, Ranks]:
        """The ranks of each file of this file's multi-device program; None is this file.

        Empty if there is no such program, or if the target runs it as nobody launched it.
        """
        return {} if self.is_unlaunched else self._program

    @cached_property
    def is_unlaunched(self) -> bool:
        """Whether only a launcher creates the program's ranks, and the target cannot serve them:
        the program then runs as if nobody had launched it."""
        if self._task.api.devices is None:
            return False
        parts = [ranks for ranks in self._program.values() if ranks.take_part]
        if not parts or not all(ranks.launched.holds_all for ranks in parts):
            return False
        if self.rank_obstacle is not None:
            return True
        if self._task.target.launches:
            return False
        joined = self._task.options.unsafe and any(ranks.samples for ranks in parts)
        return not joined and not self.only_infers

    def leaves_to_launcher(self, node: ast.AST) -> bool:
        """Whether only processes that nobody launches on the target run a node."""
        return self.is_unlaunched and self.own_ranks.launched.holds(node)

    @cached_property
    def _program(self) -> Mapping[Path | None, Ranks]:
        if self._task.project is None:
            return {None: self.own_ranks} if self.own_ranks.start is not None else {}
        program: dict[Path | None, Ranks] = dict(self._ranks_by_file.items())
        program.pop(self._task.project.path, None)
        return {None: self.own_ranks, **program} if self._ranks_by_file else {}

    @cached_property
    def _ranks_by_file(self) -> Mapping[Path, Ranks]:
        alone = self._task.api.devices is None or self._task.api.devices.launch is None
        return (
            self._task.project.distributed_program(in_one_process=alone)
            if self._task.project
            else {}
        )

    def label(self, path: Path) -> str:
        """The name of a file of the program in messages, or its path if names clash; "" for this
        file."""
        if self._task.project is None or path == self._task.project.path:
            return ""
        return self._task.project.label(path)

    @cached_property
    def rank_obstacle(self) -> Obstacle | None:
        """Why the target cannot run the program's ranks."""
        alone = {None: self.own_ranks} if self._task.project is None else {}
        for path, ranks in (alone or self._ranks_by_file).items():
            found = self._obstacle(ranks, path)
            if found is not None:
                return Obstacle(path, *found)
        return None

    def _obstacle(self, ranks: Ranks, path: Path | None = None) -> tuple[int, str] | None:
        devices = self._task.api.devices
        if devices is not None and devices.launch is not None:
            for node, reason in self._in_the_way(ranks, path):
                if (
                    self._task.project is None
                    or path is None
                    or self._task.project.reaches(path, node)
                ):
                    return node.lineno, reason
            return None
        if self.only_infers:
            return ranks.obstacles.to_one_rank
        if self._task.project is None or path is None:
            return ranks.obstacles.to_one_process()
        return self._task.project.obstacle(path, ranks)

    def _in_the_way(self, ranks: Ranks, path: Path | None = None) -> Sequence[Cause]:
        """What the target does not support of a file's ranks, if it keeps ranks."""
        if (devices := self._task.api.devices) is None or devices.launch is None:
            return ()
        if self._task.project is not None:
            return self._task.project.in_the_way(path, ranks, devices=devices)
        return ranks.obstacles.to_launch(devices=devices)

    @cached_property
    def unserved(self) -> dict[ast.AST, str]:
        """Code that the target does not support, and why; the program never reaches it."""
        return dict(self._in_the_way(self.own_ranks)) if self.ranks else {}

    @cached_property
    def only_infers(self) -> bool:
        """Whether a program with ranks does no training: one rank can then do the work of all."""
        if self._task.project is None:
            return stops_gradients(self._task.names) and not speaks_of_training(
                self._task.names.tree
            )
        return self._task.project.only_infers()
