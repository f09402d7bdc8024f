"""After a change, a module's tree is what parsing all of its text would give."""

from __future__ import annotations

import ast
import random
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.diagnostics import lines_of
from migrator.pipeline import guard
from migrator.pipeline.reparse import reparsed

_PIPELINE = Path(__file__).parents[2] / "migrator" / "pipeline"
SOURCES = sorted(path for path in _PIPELINE.glob("*.py") if path.stat().st_size > 1000)
# What continues a statement, ends one, or hides what follows.
LINES = (
    "else:\n", "    x = 1\n", "\n", "import a\n", "'''\n", "x = (\n", ")\n", "elif y:\n", "\\\n",
    "# c\n", "except E: pass\n", "@d\n", "a; b\n", "a; \\\n", "@(\n", "  \n", "case 1:\n", "\f\n",
)  # fmt: skip


def _changed(lines: list[str], chosen: random.Random) -> list[str]:
    """A copy with up to three lines added, removed, replaced or copied from elsewhere."""
    new = [*lines]
    for _ in range(chosen.choice((1, 1, 2, 3))):
        at = chosen.randrange(len(new))
        match chosen.randrange(5):
            case 0 | 1:
                new.insert(at, chosen.choice(LINES))
            case 2:
                del new[at : at + chosen.randrange(1, 4)]
            case 3:
                new[at] = chosen.choice(LINES)
            case _:
                start = chosen.randrange(len(lines))
                new[at:at] = lines[start : start + chosen.randrange(1, 12)]
    return lines_of("".join(new))


@pytest.mark.filterwarnings("ignore:invalid escape")  # in what the change has cut open
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_any_change_gives_the_tree_of_the_whole_text(path: Path) -> None:
    chosen = random.Random(path.stem)
    lines = lines_of(path.read_text())
    tree = ast.parse("".join(lines))
    kept = 0
    for _ in range(60):
        before = _changed(lines, chosen)
        with suppress(SyntaxError):
            tree, lines = ast.parse("".join(before)), before
        after = _changed(lines, chosen)
        try:
            found = reparsed(tree, lines, after)
        except SyntaxError:
            continue  # the whole text is parsed then
        assert ast.dump(found) == ast.dump(ast.parse("".join(after)))
        kept += len({*tree.body}.intersection(found.body))
    assert kept


def _lines(text: str) -> tuple[ast.Module, list[str]]:
    return ast.parse(text), lines_of(text)


def test_statements_whose_lines_are_unchanged_are_kept() -> None:
    tree, before = _lines("import a\n\n@a.b\ndef f():\n    pass\n\n\nx = 1; y = 2\nz = 3\n")
    _, after = _lines("import a\nimport new\n\n@a.b\ndef f():\n    pass\n\n\nx = 1; y = 2\nz = 4\n")
    found = reparsed(tree, before, after)
    assert found.body[2:5] == tree.body[1:4]
    assert [s.lineno for s in found.body if s not in tree.body] == [1, 2, 10]


def test_what_continues_a_statement_is_not_cut_off() -> None:
    tree, before = _lines("if a:\n    b\nc\n")
    with pytest.raises(SyntaxError):
        reparsed(tree, before, lines_of("if a:\n    b\nelse:\n    d\nc\n"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1; \\\ny = 2\n", "x = 1; \\\n"),
        ("x = 1\n\\\ny = 2\n", "x = 1\n\\\n"),
        ("x = 1; \\\nf()\n", "x = 1; \\\nif a:\n    f()\n"),
        ("x = 1\n@(\nd\n)\ndef f(): pass\n", "x = 1\n@(\nimport new\nd\n)\ndef f(): pass\n"),
        ("x = 1\n", "x = 1\n\xa0\n"),
    ],
)
def test_what_does_not_parse_is_not_taken_for_a_module(before: str, after: str) -> None:
    with pytest.raises(SyntaxError):
        reparsed(*_lines(before), lines_of(after))


def test_an_edit_that_was_not_made_is_noticed_in_kept_statements() -> None:
    from migrator.edits import Replace

    tree, lines = _lines("x.cuda()\ny = 1\n")
    call = tree.body[0].value  # type: ignore[attr-defined]
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    edits = [Replace(call, "x")]
    found = reparsed(tree, lines, lines)
    with pytest.raises(guard.Differs):
        guard.check(tree, found, parents, edits, (lines, lines), {*tree.body})
    guard.check(tree, found, parents, [], (lines, lines), {*tree.body})
