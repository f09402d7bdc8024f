"""Migrates mutants of real scripts, and prints what does not hold.

    python benchmarks/mutants.py --count 2000 --seed 0
    python benchmarks/mutants.py --seed 0 --only 137   # one of them, with its text
    python benchmarks/mutants.py --of CHECKOUTS        # of what lies there, instead

The scripts are those of installed packages that say something of GPUs, and our own; they are found
at run time. Each mutant is a script that is changed by structure, a few times over.
"""

from __future__ import annotations

import argparse
import ast
import random
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

from migrator.diagnostics import Outcome, Severity
from migrator.options import Options
from migrator.pipeline.engine import migrate
from migrator.targets import targets

_LARGEST = 20_000  # bytes
_LIMIT = 20.0  # seconds for one mutant


@cache
def scripts(of: Path | None = None) -> tuple[Path, ...]:
    """Python files with a word of GPUs, in an order that does not change."""
    here = Path(__file__).resolve().parents[1]
    folders = [Path(sysconfig.get_paths()["purelib"]), here / "golden", here / "reference_apps"]
    folders = folders if of is None else [of]
    found = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if path.stat().st_size < _LARGEST and b"cuda" in path.read_bytes()
    ]
    return tuple(found)


# ---- mutations -----------------------------------------------------------------------------------


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block
    ]


def _drop(tree: ast.Module, random: random.Random) -> None:
    block = random.choice(_blocks(tree))
    if len(block) > 1:
        del block[random.randrange(len(block))]


def _double(tree: ast.Module, random: random.Random) -> None:
    block = random.choice(_blocks(tree))
    at = random.randrange(len(block))
    block.insert(at, ast.parse(ast.unparse(block[at])).body[0] if _stands_alone(block[at]) else
                 ast.Pass())  # fmt: skip


def _stands_alone(statement: ast.stmt) -> bool:
    try:
        ast.parse(ast.unparse(statement))
    except SyntaxError:
        return False
    return True


def _rename(tree: ast.Module, random: random.Random) -> None:
    names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})
    old, new = random.choice(names), random.choice([*names, "device", "x", "rank", "model"])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new


def _put_in(tree: ast.Module, random: random.Random) -> None:
    lines = ("x = x.cuda()", '"cuda"', 'note = "cuda:0"', "torch.cuda.synchronize()",
             'y = f"{x.cuda()}"', "del x", "x = (x.cuda(), [y.cuda() for y in x])")  # fmt: skip
    block = random.choice(_blocks(tree))
    block.insert(random.randrange(len(block) + 1), ast.parse(random.choice(lines)).body[0])


_AROUND = (
    "if flag:\n    pass", "try:\n    pass\nfinally:\n    done()", "with torch.no_grad():\n    pass",
    "for i in range(2):\n    pass", "while flag:\n    pass",
    "with torch.cuda.amp.autocast():\n    pass", "if torch.cuda.is_available():\n    pass",
    "def inner():\n    pass", "class Inner:\n    pass",
)  # fmt: skip


def _wrap(tree: ast.Module, random: random.Random) -> None:
    block = random.choice(_blocks(tree))
    first = random.randrange(len(block))
    last = random.randrange(first, min(len(block), first + 4)) + 1
    around = ast.parse(random.choice(_AROUND)).body[0]
    around.body = block[first:last]  # type: ignore[attr-defined]
    block[first:last] = [around]


def _in_lambda(tree: ast.Module, random: random.Random) -> None:
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    if calls:
        chosen = random.choice(calls)
        arguments = ast.arguments([], [], None, [], [], None, [])
        chosen.value = ast.Call(ast.Lambda(arguments, chosen.value), [], [])


_MUTATIONS: tuple[Callable[[ast.Module, random.Random], None], ...] = (
    _drop, _double, _rename, _put_in, _wrap, _wrap, _in_lambda,
)  # fmt: skip


def _with_torch(tree: ast.Module) -> ast.Module:
    """The same, with torch imported: what is put in names it, and would mean nothing before a
    migration brings an import."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    if not any(alias.name == "torch" for node in imports for alias in node.names):
        first = sum(1 for _ in takewhile(_comes_first, tree.body))
        tree.body.insert(first, ast.parse("import torch").body[0])
    return tree


def _comes_first(statement: ast.stmt) -> bool:
    """A docstring, or `from __future__ import …`."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
            return True
    return False


def mutant(seed: int, number: int, of: Path | None = None) -> tuple[Path, str]:
    """A script, and what became of it; each tenth stays as it is."""
    chance = random.Random(f"{seed}/{number}")
    path = chance.choice(scripts(of))
    text = path.read_text("utf-8", "replace")
    if not number % 10:
        return path, text
    tree = _with_torch(ast.parse(text))
    for _ in range(chance.randint(1, 4)):
        chance.choice(_MUTATIONS)(tree, chance)
        tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
    text = ast.unparse(tree)
    lines = text.split("\n")
    if chance.random() < 0.5:  # comments, which `ast` does not keep
        for at in sorted({chance.randrange(len(lines)) for _ in range(5)}, reverse=True):
            lines.insert(at, "# x.cuda()")
        try:
            ast.parse("\n".join(lines))
            text = "\n".join(lines)
        except SyntaxError:
            pass
    return path, text + "\n"


# ---- what holds ----------------------------------------------------------------------------------


def broken(text: str, target: str) -> Iterator[str]:
    """What does not hold for a migration."""
    source, words, options = text.encode(), targets()[target], Options(entry=False)
    start = time.process_time()
    result = migrate(source, words, options)
    if time.process_time() - start > _LIMIT:
        yield "it takes too long"
    for diagnostic in result.diagnostics:
        if diagnostic.severity is Severity.ERROR:
            yield f"{diagnostic.code}: {diagnostic.message}"
    if result.failed:
        return
    ast.parse(result.source)
    if migrate(source, words, options) != result:
        yield "it is not the same twice"
    places = Counter(
        (d.range, d.code, d.construct, d.message) for d in result.diagnostics if d.outcome
    )
    if any(count > 1 for count in places.values()):
        yield f"a construct has two outcomes: {places.most_common(1)[0][0]}"
    edits = any(d.outcome is Outcome.REWRITTEN or d.is_edit for d in result.diagnostics)
    if result.changed and not edits:
        yield "it changes without a word"
    if migrate(result.source, words, options).source != result.source:
        yield "a second run changes it"


def check(seed: int, number: int, of: Path | None = None) -> list[str]:
    """What does not hold for one mutant, on both targets."""
    found: list[str] = []
    try:
        path, text = mutant(seed, number, of)
    except (SyntaxError, ValueError, RecursionError, IndexError):
        return found  # no Python any more, or nothing to change
    for target in targets():
        try:
            found += [f"{target}: {path.name}: {what}" for what in broken(text, target)]
        except Exception:
            found.append(f"{target}: {path.name}: {traceback.format_exc(limit=-4)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--only", type=int, help="one mutant, with its text")
    parser.add_argument("--of", type=Path, metavar="FOLDER", help="whose scripts")
    options = parser.parse_args()
    if options.only is not None:
        print(mutant(options.seed, options.only, options.of)[1])
        print("\n".join(check(options.seed, options.only, options.of)))
        return
    failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        each = partial(check, options.seed, of=options.of)
        results = pool.map(each, range(options.count), chunksize=8)
        for number, found in enumerate(results):
            failed += bool(found)
            for what in found:
                print(f"--seed {options.seed} --only {number}: {what}", flush=True)
    found_in = len(scripts(options.of))
    print(f"{options.count} mutants of {found_in} scripts, {failed} with something broken")


if __name__ == "__main__":
    main()
