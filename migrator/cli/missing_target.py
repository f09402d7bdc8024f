"""What is said to somebody who has named no target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from migrator.errors import UsageError
from migrator.files.discover import discover
from migrator.frameworks import frameworks
from migrator.targets import targets

_MOST = 200  # files that are looked at


def missing_target(paths: Sequence[str], auto: str) -> UsageError:
    """The error, with the targets of the framework that most files use first.

    Args:
        auto: stands for the target that gets furthest.
    """
    uses: Counter[str] = Counter()
    for path in discover([Path(path) for path in paths if Path(path).exists()]).files[:_MOST]:
        with suppress(OSError):
            source = path.read_bytes()
            uses.update(name for name, each in frameworks().items() if each.has_tokens(source))
    by_name = sorted(targets().items())
    names = [name for name, target in sorted(by_name, key=lambda t: -uses[t[1].framework])]
    return UsageError(
        f"no target given: --target {auto} chooses one by the code, or name it "
        f"({', '.join(names)}), also as target in [tool.tpu-migrate]"
    )
