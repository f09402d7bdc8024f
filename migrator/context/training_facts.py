"""Training in a file: its loops, and how its models are divided."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.analysis.training.iterations import Iterations
from migrator.analysis.training.sync_points import Hot
from migrator.context.task import Task
from migrator.edits import Edit

if TYPE_CHECKING:
    from migrator.analysis.training.computation import Computation
    from migrator.analysis.training.sharding_tables import ShardingTable


class TrainingFacts:
    """Training in a file: its loops, and how its models are divided."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.sharding_tables: dict[ast.ClassDef, tuple[str, Edit]] = {}  # by model

    @cached_property
    def hot(self) -> Hot:
        """The loops in which this file uses the device."""
        return Hot(self._task.names, self._task.flow)

    @cached_property
    def iterations(self) -> Iterations:
        """The iterations in which this file trains."""
        return Iterations(self.hot)

    @cached_property
    def computation(self) -> Computation:
        """What the code of this file computes."""
        from migrator.analysis.training.computation import Computation  # few files ask

        return Computation(self._task.names, self._task.flow, self._task.project)

    @cached_property
    def shardings(self) -> dict[ast.expr, ShardingTable | None]:
        """How each model that moves to the device is divided; None if unknown."""
        inner = self._task.options.tensor_parallel
        if not inner:
            return {}
        from migrator.analysis.training.sharding_tables import Models

        return Models(self._task.names, self._task.flow, self._task.project).tables(inner)

    @cached_property
    def divides_models(self) -> bool:
        """Whether this file, or one that it imports, divides a model over the devices."""
        if any(table is not None and table.rules for table in self.shardings.values()):
            return True
        inner = self._task.options.tensor_parallel
        return (
            bool(inner) and self._task.project is not None and self._task.project.divides_models()
        )
