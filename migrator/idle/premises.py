"""The premises that `answer` depends on, stored at the end of a hook's run for later ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from migrator.analysis.project.extensions import may_compile
from migrator.cache import store
from migrator.cache.entries import HOOK
from migrator.cache.tool import as_it_is, plugins
from migrator.config import OWN, SHARED, Config, load
from migrator.files import witness
from migrator.files.discover import (
    ENVIRONMENT,
    SKIPPED,
    TODO,
    Disk,
    is_passed_over,
    project_root,
)
from migrator.files.journal import Journal
from migrator.files.lock import lock_file
from migrator.files.witness import watching
from migrator.frameworks import frameworks
from migrator.idle.answer import premises_of
from migrator.idle.asked import asked
from migrator.idle.imported import Unsure
from migrator.pipeline.analyse import letters_of_constructs
from migrator.targets import RUNTIME, find_target


def note(arguments: Sequence[str], config: Config) -> None:
    """Store the conditions under which a run with these arguments would find nothing."""
    question = asked(list(arguments))
    if question is None or config.excluded or plugins():
        return
    with suppress(Unsure, OSError, ValueError):
        premises_of(question)
        return  # it is stored already
    here = Path.cwd()
    if may_compile(project_root(here), Disk()):
        return  # what imports a compiled module has something to report
    with watching() as seen:
        root = project_root(here)
        is_project = witness.exists(root / ".git")
        if not is_project or is_passed_over(Path("any.py"), config.home, ()):
            return
        if load(Path()).home.resolve() != config.home.resolve():
            return  # it belongs to a folder below
        for name in (".gitmodules", "setup.py"):  # that may bring the first one
            witness.exists(root / name)
        witness.exists(Journal(root).unfinished)
        witness.exists(lock_file(root))
    targets = map(find_target, config.targets)
    letters = {word for target in targets for word in letters_of_constructs(target, config.options)}
    letters |= {name.encode() for each in frameworks().values() for name in each.packages}
    states, answers = as_it_is()
    premises = {
        "states": states | {path: state for path, (state, _) in seen.seen.items()},
        "answers": [
            *answers,
            *((asks, path, answer) for (asks, path), answer in seen.answers.items()),
        ],
        "letters": sorted({*letters, TODO}),
        "no_source": {*SKIPPED, RUNTIME},
        "marks": {".git", OWN, SHARED, ENVIRONMENT},
        "root": str(root),
    }
    store.put(HOOK, question.of, premises)
