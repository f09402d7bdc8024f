"""A rule: a code, a reason, examples, and handlers that each decide about one construct.

Rules import it, and all else that they need, from `migrator.rule_api`.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, overload

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
N = TypeVar("N", bound=ast.AST)
NodeHandler = Callable[[Context, Construct, N], Decision | None]


@dataclass(frozen=True)
class Example:
    """A snippet before and after; without `after` it stays as it is.

    The text may be indented like the code around it. In `after`, `{device}` is the target's device.
    `except_on` is for targets whose result differs in other ways: None means that the target leaves
    the snippet as it is. Where programs choose their device by torch's own words, nearly every
    result does: what is not named here says nothing about such a target. `says` is what the rule
    is expected to say: a part of its message, by the line of the snippet.
    """

    before: str
    after: str | None = None
    except_on: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    script: bool = False  # an entry script: gets the set-up statements too
    unsafe: bool = False  # needs --unsafe
    portable: bool = False  # with --portable
    shard: str = "replicated"  # with --shard
    path: str = "example.py"  # the name tells the kind of file
    replace: tuple[tuple[str, str], ...] = ()  # with [tool.tpu-migrate.replace]
    says: Mapping[int, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", _dedented(self.before))

    def speaks_of(self, target: Target) -> bool:
        """Whether the example says what becomes of it on a target."""
        return not target.portable or target.name in self.except_on

    def expected(self, target: Target) -> str:
        """The expected result on a target."""
        after = self.except_on.get(target.name, self.after)
        return (
            self.before
            if after is None
            else _dedented(after).replace("{device}", target.api.device)
        )

    @property
    def options(self) -> Options:
        return Options(
            unsafe=self.unsafe, portable=self.portable, shard=self.shard,
            replace=self.replace, entry=self.script,
        )  # fmt: skip

    @staticmethod
    def moved(before: str) -> Example:
        """A snippet whose only change is that its model moves to the device."""
        return Example(before, before.replace(".cuda()", '.to("{device}")'))


def _dedented(text: str) -> str:
    """The text without the indentation of the code around it."""
    return textwrap.dedent(text[1:].rstrip(" ")) if text.startswith("\n") else text


@dataclass(eq=False)
class Rule:
    """One diagnostic code. `on` registers handlers for constructs."""

    code: str
    name: str
    summary: str
    why: str
    examples: Sequence[Example]
    safety: Safety = Safety.SAFE
    effort: Effort = Effort.MINUTES  # for each construct that it reports
    references: Sequence[str] = ()
    for_cuda: bool = False  # what it reports only exists for CUDA
    for_overlap: bool = False  # what it reports overlaps work, which XLA does by itself
    foreign: bool = False  # turns code for another target into GPU code
    framework: str = "torch"  # of the code that it handles; "" for any
    of_python: bool = False  # handles Python's libraries, which code of any framework uses
    imports: Sequence[str] = ()  # more names whose import goes with their last use
    moves_to_device: bool = False  # its edits move a program to the device
    is_requirement: bool = False  # handles what is installed, not code
    # The engine itself decides about code written for the target, code that only a launcher's
    # processes reach, and files that cells write. One rule each gives its name to these decisions.
    for_native_code: bool = False
    for_launched_code: bool = False
    for_written_files: bool = False
    handlers: list[tuple[str, str, Handler]] = field(default_factory=list, repr=False)

    @property
    def targets(self) -> dict[str, Target]:
        """The targets that the rule may write for, by name."""
        return {n: t for n, t in targets().items() if self.framework in ("", t.framework)}

    @overload
    def on(self, kind: str, *keys: str) -> Callable[[Handler], Handler]: ...

    @overload
    def on(self, kind: str, *keys: str, node: type[N]) -> Callable[[NodeHandler[N]], Handler]: ...

    def on(self, kind: str, *keys: str, node: type[N] | None = None) -> Callable[..., Handler]:
        """Register a handler for a kind of construct.

        The kind "advice" is for code that is not a construct: see `migrator.pipeline.advice`.

        Args:
            kind: One of those that `Construct` lists.
            *keys: Of the constructs; `*` ends a prefix.
            node: The type of the constructs' nodes. The handler gets the node as a third argument.
        """

        def register(handler: Callable[..., Decision | None]) -> Handler:
            made = handler if node is None else _with_node(handler, node)
            self.handlers.extend((kind, key, made) for key in keys)
            return made

        return register

    def decision(self, ctx: Context, found: Construct) -> Decision | None:
        """What the rule's handler for this kind and key decides; ValueError if it has none."""
        for kind, key, handler in self.handlers:
            if (kind, key) == (found.kind, found.key):
                return handler(ctx, found)
        raise ValueError(f"{self.code} has no handler for {found.kind} {found.key}")


def _with_node(handler: NodeHandler[N], kind: type[N]) -> Handler:
    """The handler, given the construct's node; TypeError if that is of another type."""

    @functools.wraps(handler)
    def handle(ctx: Context, found: Construct) -> Decision | None:
        if not isinstance(found.node, kind):
            got = type(found.node).__name__
            raise TypeError(f"{handler.__name__} expects {kind.__name__}, got {got}: {found.key}")
        return handler(ctx, found, found.node)

    return handle
