"""How the statements of a round are laid out: in blocks, functions, closures, methods."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_AROUND = (
    "with torch.enable_grad():\n    pass",
    "with torch.set_grad_enabled(step < 100):\n    pass",
    'with torch.autocast("cuda", enabled=False):\n    pass',
    "with contextlib.nullcontext():\n    pass",
    'with Noted(notes, "part"):\n    pass',
    "if step < 100:\n    pass",
    "try:\n    pass\nfinally:\n    finished += 1",
    "try:\n    pass\nfinally:\n    notes.append(step)",
)
_AROUND_WITHOUT_EXITS = (
    "for _ in range(1):\n    pass",
    "for only in [step]:\n    pass",
    "while True:\n    pass\n    break",
)
_FAILING = """try:
    if step == {step}:
        raise ValueError("bad batch")
except ValueError as error:
    print("skipped", step, error)
    {end}"""
_EXITS = (
    "if step == {step}:\n    continue",
    "if step % 5 == {step}:\n    skipped += 1\n    continue",
    "if step > 2 and random.random() < 0.25:\n    continue",
    "if step > 2 and np.random.rand() < 0.25:\n    skipped += 1\n    continue",
    "if step > 2 and torch.rand(1).item() < 0.25:\n    continue",
    "if step == 7:\n    break",
    "if step > 4 and y.sum() % 7 == 0:\n    break",
    "if step > 2 and (y == 0).sum().item() > 2:\n    continue",
)
SETUP = {"notes": "notes = []", "finished": "finished = 0", "skipped": "skipped = 0"}


def parse(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@dataclass
class Names:
    """Those that statements read and write, without those of comprehensions."""

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    certain: set[str] = field(default_factory=set)  # written wherever the end is reached
    deleted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, statements: Iterable[ast.AST]) -> Names:
        names = cls()
        for statement in statements:
            names._add(statement, certain=True)
        return names

    def _add(self, node: ast.AST, certain: bool, own: frozenset[str] = frozenset()) -> None:
        if isinstance(node, _SCOPES):
            targets = node.args.args if isinstance(node, ast.Lambda) else node.generators
            inner = {n.id for t in targets for n in ast.walk(t) if _is_stored(n)}
            inner |= {t.arg for t in targets if isinstance(t, ast.arg)}
            own |= inner
        if isinstance(node, ast.Name) and node.id not in own:
            if isinstance(node.ctx, ast.Load):
                self.read.add(node.id)
            elif isinstance(node.ctx, ast.Del):
                self.deleted.add(node.id)
            else:
                self.written.add(node.id)
                self.certain |= {node.id} if certain else set()
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.read.add(node.target.id)
        if isinstance(node, ast.FunctionDef):
            self.written.add(node.name)
            self.certain.add(node.name)
            inside = Names.of(node.body)
            self.read |= inside.read - inside.written
            return
        certain = certain and not isinstance(node, ast.If | ast.For | ast.While | ast.Try)
        for child in ast.iter_child_nodes(node):
            self._add(child, certain, own)


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def leaves(statements: Iterable[ast.stmt]) -> bool:
    """Whether they leave the round, or what they stand in."""
    kinds = ast.Continue | ast.Break | ast.Return
    return any(isinstance(node, kinds) for s in statements for node in ast.walk(s))


def _range(chance: random.Random, body: Sequence[ast.stmt], most: int) -> tuple[int, int]:
    first = chance.randrange(len(body))
    return first, min(len(body), first + chance.randint(1, most))


def wrap(chance: random.Random, body: list[ast.stmt]) -> None:
    """Put some of the statements into a block that changes nothing."""
    first, end = _range(chance, body, 6)
    choices = _AROUND if leaves(body[first:end]) else _AROUND + _AROUND_WITHOUT_EXITS
    [around] = parse(chance.choice(choices))
    assert isinstance(around, ast.With | ast.If | ast.Try | ast.For | ast.While)
    around.body[:1] = body[first:end]
    body[first:end] = [around]


def let_fail(chance: random.Random, body: list[ast.stmt], after: int) -> None:
    """Put some of the statements into a `try` that fails in one round."""
    first = chance.randint(min(after, len(body) - 1), len(body) - 1)
    end = min(len(body), first + chance.randint(1, 5))
    [around] = parse(_FAILING.format(step=chance.choice([3, 4, 6]), end="continue"))
    assert isinstance(around, ast.Try)
    at = chance.randint(first, end) - first
    around.body[:] = [*body[first : first + at], *around.body, *body[first + at : end]]
    body[first:end] = [around]


def leave_early(chance: random.Random, body: list[ast.stmt], after: int) -> None:
    """Insert what ends some rounds early."""
    text = chance.choice(_EXITS).format(step=chance.choice([3, 4, 6]))
    at = chance.randint(after, len(body))
    body[at:at] = parse(text)


@dataclass
class Outline:
    """Moves statements of a round into functions of their own, which read what is set up."""

    kept: set[str]  # names that are set up: globals, or those of a function or an object around
    style: str  # script, function, or class
    given: set[str]  # names that each round begins with
    last: set[str]  # names that are read behind the loop
    functions: list[ast.FunctionDef] = field(default_factory=list)

    def take(self, chance: random.Random, body: list[ast.stmt]) -> None:
        """Move some of them, if their names allow it."""
        first, end = _range(chance, body, 5)
        inside = Names.of(body[first:end])
        if leaves(body[first:end]) or inside.deleted:
            return
        earlier = Names.of(body[:first])
        before = earlier.certain | self.given | self.kept
        around = Names.of([*body[:first], *body[end:]])
        read = around.read | around.deleted | self.last
        kept = self.kept - {"step"} if self.style == "class" else set()
        changing = around.written | inside.written | self.given
        passed = inside.read & changing
        results = {n for n in inside.written if n in self.kept or n in read} - kept
        passed |= results - inside.certain
        unsure = (passed - before) & (earlier.written | (passed - inside.certain))
        if unsure:
            return
        passed = (passed & before) - kept
        declared: list[ast.stmt] = []
        shared = sorted(results & self.kept - {"step"})
        if shared and chance.random() < 0.5:
            word = "global" if self.style == "script" else "nonlocal"
            declared = parse(f"def f():\n    {word} {', '.join(shared)}")[0].body  # type: ignore[attr-defined]
            results -= set(shared)
            passed -= set(shared)
        name = f"part_{len(self.functions) + 1}"
        [made] = parse(f"def {name}({', '.join(sorted(passed))}):\n    pass")
        assert isinstance(made, ast.FunctionDef)
        made.body = [*declared, *body[first:end]]
        listed = ", ".join(sorted(results))
        if results:
            made.body += parse(f"def f():\n    return {listed}")[0].body  # type: ignore[attr-defined]
        call = f"{'self.' if self.style == 'class' else ''}{name}({', '.join(sorted(passed))})"
        if self.style == "class":
            made.args.args.insert(0, ast.arg("self"))
        body[first:end] = parse(f"{listed} = {call}" if results else call)
        self.functions.append(made)


class OfSelf(ast.NodeTransformer):
    """Names become attributes."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        return ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx)
