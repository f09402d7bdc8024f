"""What is known of a file's values and expressions."""

from __future__ import annotations

from functools import cached_property

from migrator.analysis.devices.own_moves import definition
from migrator.analysis.values.effects import Effects
from migrator.analysis.values.evidence import Evidence
from migrator.analysis.values.statement_order import StatementOrder
from migrator.analysis.values.value_kinds import Kind
from migrator.context.task import Task


class KnownValues:
    """What is known of a file's values and expressions."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @cached_property
    def evidence(self) -> Evidence:
        """What is known about values, beyond the hints that names give."""
        return Evidence(self._task.names, self._task.flow, self._task.project)

    @cached_property
    def effects(self) -> Effects:
        """The side effects of expressions."""
        known = {
            c.node for c in self._task.constructs if c.kind == "method" and c.key == "get_device"
        }
        return Effects(self._task.names, self._task.flow, self._task.project, known)

    @cached_property
    def order(self) -> StatementOrder:
        """Which statements may change places."""
        return StatementOrder(self._task.names, self.effects, self.evidence.is_tensor)

    def defines(self, attribute: str, kind: Kind = Kind.NOTHING) -> str:
        """A class of the project that defines an attribute which torch's classes have; "" for none.

        If the object is known to be a model, only models count. A method that does the same as
        torch's does not count.
        """
        return definition(self.evidence, attribute, kind)
