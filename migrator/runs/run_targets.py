"""The targets of a run: at most one for each framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from migrator.errors import UsageError
from migrator.frameworks import find_framework, frameworks
from migrator.runs.run_report import FileReport
from migrator.targets import RUNTIME, Target, find_target, targets


def chosen(names: str | Sequence[str]) -> list[Target]:
    """The targets of these names; first that whose framework other code is read as.

    Raises:
        UsageError: an unknown one, two for one framework, or two that bring a runtime.
    """
    found = [find_target(n) for n in dict.fromkeys([names] if isinstance(names, str) else names)]
    by_framework: dict[str, Target] = {}
    for target in found:
        other = by_framework.setdefault(target.framework, target)
        if other is not target:
            said = f"{other.name} and {target.name} are both for {target.framework}"
            raise UsageError(f"--target: {said}; choose one")
    with_runtime = [target.name for target in found if target.runtime is not None]
    if len(with_runtime) > 1:
        raise UsageError(f"--target: {' and '.join(with_runtime)} both bring a {RUNTIME}")
    return sorted(found, key=lambda target: not find_framework(target.framework).normalised)


def of_source(source: bytes, names: Sequence[str]) -> Target:
    """The one of several targets whose framework a program imports; else the first."""
    found = chosen(names)
    of_framework = (t for t in found if find_framework(t.framework).is_imported_in(source))
    return next(of_framework, found[0])


def label(wanted: Sequence[Target]) -> str:
    return ", ".join(target.name for target in wanted)


def without_target(files: Iterable[FileReport], wanted: Sequence[Target]) -> Iterator[str]:
    """A note on each framework that files import, and that no target was chosen for."""
    served = {target.framework for target in wanted}
    for framework in frameworks().values():
        if framework.name in served:
            continue
        number = sum(framework.is_imported_in(file.result.original) for file in files)
        if number:
            there = [name for name, each in targets().items() if each.framework == framework.name]
            how = f"--target {' or '.join(there)}" if there else "none is known"
            yield (
                f"{framework.name}: {number} file{'' if number == 1 else 's'} with it, where what "
                f"is of it stays as it is, since no target is chosen for it ({how})"
            )
