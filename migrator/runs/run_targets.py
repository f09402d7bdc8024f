"""The targets of a run: at most one for each framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.errors import UsageError
from migrator.frameworks import find_framework, frameworks
from migrator.frameworks.framework import Framework
from migrator.pipeline.analyse import may_be_of
from migrator.runs.run_report import FileReport
from migrator.targets import RUNTIME, Target, find_target, targets
from migrator.targets.wheel import label_in, version_label


def chosen_targets(names: str | Sequence[str]) -> list[Target]:
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
    """Of several targets, the one whose framework a program imports; otherwise the first."""
    found = chosen_targets(names)
    of_framework = (t for t in found if find_framework(t.framework).is_imported_in(source))
    return next(of_framework, found[0])


def label(wanted: Sequence[Target]) -> str:
    return ", ".join(target.name for target in wanted)


def without_target(files: Sequence[FileReport], wanted: Sequence[Target]) -> Iterator[str]:
    """A note on each framework that no target was chosen for: how many files are left as they are.

    One that also imports a framework with a target counts if it speaks of the other's GPUs: without
    that, it only borrows from it, as logging and input pipelines do.
    """
    served = {target.framework for target in wanted}
    sources = [file.result.original for file in files]
    for framework in frameworks().values():
        if framework.name in served:
            continue
        number = sum(_is_left(source, framework, served) for source in sources)
        if number:
            there = [name for name, each in targets().items() if each.framework == framework.name]
            choice = f"--target {' or '.join(there)}"
            how = f"choose {choice}" if there else "there is no target for it yet"
            use = "1 file uses it and is" if number == 1 else f"{number} files use it and are"
            yield f"{framework.name}: {use} left unchanged; {how}"


def _is_left(source: bytes, framework: Framework, served: set[str]) -> bool:
    if not framework.is_imported_in(source):
        return False
    borrowed = any(find_framework(name).is_imported_in(source) for name in served)
    return not borrowed or may_be_of(framework, source)


def target_of_wheel(wheel: Path) -> str:
    """The target that the name of a runtime's wheel says, installed here or not."""
    labels = [label for name in targets() for label in (name, f"{name} --portable")]
    said = label_in(wheel.name)
    return next((label for label in labels if version_label(label) == said), said)
