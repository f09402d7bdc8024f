"""What a rule is: a code, a reason, examples, and handlers that decide about one construct each.

Rules import all that they need to decide from here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Decision, Keep, Report, Rewrite, advice
from migrator.diagnostics import Effort, Safety
from migrator.options import Options
from migrator.targets import Target, targets

__all__ = [
    "Context", "Decision", "Example", "Handler", "Keep", "Report", "Rewrite", "Rule", "advice",
]  # fmt: skip

Handler = Callable[[Context, Construct], Decision | None]


@dataclass(frozen=True)
class Example:
    """A snippet before and after; without an `after` it stays.

    Text may be indented as the code around it is. In what is after, `{device}` is the target's
    device. `except_on` has the targets that differ by more than such words: None is one that
    leaves the snippet as it is.
    """

    before: str
    after: str | None = None
    except_on: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    script: bool = False  # an entry script: gets the set-up statements too
    unsafe: bool = False  # needs --unsafe
    portable: bool = False  # with --portable
    shard: str = "replicated"  # with --shard
    path: str = "example.py"  # a name that says what kind of file it is
    replace: tuple[tuple[str, str], ...] = ()  # with [tool.tpu-migrate.replace]

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", _dedented(self.before))

    def expected(self, target: Target) -> str:
        """What the snippet becomes on a target."""
        after = self.except_on.get(target.name, self.after)
        return (
            self.before
            if after is None
            else _dedented(after).replace("{device}", target.words.device)
        )

    @property
    def options(self) -> Options:
        return Options(
            unsafe=self.unsafe, portable=self.portable, shard=self.shard,
            replace=self.replace, entry=self.script,
        )  # fmt: skip

    @staticmethod
    def moved(before: str) -> Example:
        """A snippet that moves a model to the device, and is changed in nothing else."""
        return Example(before, before.replace(".cuda()", '.to("{device}")'))


def _dedented(text: str) -> str:
    """A text as it was meant that begins on a line of its own, indented like the code around."""
    return textwrap.dedent(text[1:].rstrip(" ")) if text.startswith("\n") else text


@dataclass(eq=False)
class Rule:
    """One diagnostic code. `on` registers a handler for constructs of the inventory."""

    code: str
    name: str
    summary: str
    why: str
    examples: Sequence[Example]
    safety: Safety = Safety.SAFE
    effort: Effort = Effort.MINUTES  # of each construct that it leaves for a person
    references: Sequence[str] = ()
    for_cuda: bool = False  # what it reports is there for CUDA alone
    foreign: bool = False  # of code for another target, which it reads as GPU code
    framework: str = "torch"  # of the code that it is about; "" for any
    imports: Sequence[str] = ()  # that go with their last use, beside those of its names
    moves_to_device: bool = False  # its edits put a program on the device
    is_requirement: bool = False  # of what is installed, not of code
    # What the engine itself decides is said in the name of one rule each: of code that was written
    # for the target, of code that a launcher's processes alone reach, of files that cells write.
    for_native_code: bool = False
    for_launched_code: bool = False
    for_written_files: bool = False
    handlers: list[tuple[str, str, Handler]] = field(default_factory=list, repr=False)

    @property
    def targets(self) -> dict[str, Target]:
        """The targets that it may write for, by name."""
        return {n: t for n, t in targets().items() if self.framework in ("", t.framework)}

    def on(self, kind: str, *keys: str) -> Callable[[Handler], Handler]:
        """Register for a construct kind and keys; a key that ends in `*` matches a prefix.

        Kind "advice" is for code that is no construct: see `migrator.pipeline.advice`.
        """

        def register(handler: Handler) -> Handler:
            self.handlers.extend((kind, key, handler) for key in keys)
            return handler

        return register
