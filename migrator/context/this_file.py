"""The file itself: whether it is a program, which device it uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property

from migrator.analysis.devices.patches import patches
from migrator.analysis.syntax.scripts import is_script
from migrator.context.task import Task
from migrator.targets import RUNTIME


class ThisFile:
    """The file itself: whether it is a program, which device it uses."""

    def __init__(self, task: Task, for_others: bool) -> None:
        self._task = task
        self.for_others = for_others  # only analysed, for a file that imports this one

    @cached_property
    def is_entry(self) -> bool:
        """Whether this file is started as a program, not imported."""
        if self._task.options.entry is not None:
            return self._task.options.entry
        script = is_script(self._task.names)
        if script is None:
            return self._task.project is None or not self._task.project.is_imported()
        return script or (self._task.project is not None and self._task.project.is_started())

    @cached_property
    def is_native(self) -> bool:
        """Whether the code was written for the target itself: then only older spellings change."""
        imports = [
            i
            for i in self._task.names.imports
            if self._task.names.parents[i] is self._task.names.tree
        ]
        names = (
            [i.module] if isinstance(i, ast.ImportFrom) else [a.name for a in i.names]
            for i in imports
        )
        libraries = {(name or "").partition(".")[0] for each in names for name in each}
        if self._task.target.markers.library not in libraries - {""} or RUNTIME in libraries:
            return False
        return not any(map(self._task.framework.uses_device, self._task.constructs))

    @cached_property
    def uses_device(self) -> bool:
        """Whether this file, or a file that it imports, uses a device."""
        own = any(map(self._task.framework.uses_device, self._task.constructs))
        return own or bool(
            self._task.project and self._task.project.leads_to_gpu(self._task.framework)
        )

    @cached_property
    def is_without_device(self) -> bool:
        """Whether this is a program that uses no device, or code that may be of another framework,
        and no other program takes its code to a device."""
        may_be_other = not any(
            name in self._task.source.text for name in self._task.framework.packages
        )
        is_cpu = (self.is_entry or may_be_other) and not self.uses_device
        return is_cpu and (
            self._task.project is None or not self._task.project.is_imported_by_gpu_code()
        )

    @cached_property
    def package(self) -> str:
        """The package of this file; "" if unknown."""
        return self._task.project.package() if self._task.project is not None else ""

    def is_own(self, qualname: str) -> bool:
        """Whether an imported name comes from a file of the project."""
        return self._task.project is not None and self._task.project.holds(qualname)

    @cached_property
    def patched(self) -> Mapping[str, str]:
        """The functions of torch.cuda that the program replaces itself, and where."""
        own = {
            k: f"line {node.lineno}"
            for k, node in patches(self._task.names, self._task.flow).items()
        }
        return own if self._task.project is None else {**self._task.project.patches(), **own}
