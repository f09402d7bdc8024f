"""LibCST is given what changes, and makes of it what it would have made of the whole file."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from helpers import run

import migrator.tree
from migrator.registry import registry
from migrator.tree.partial_source import Abridged

LONG = """\
import os
import torch

LOWEST = 1
HIGHEST = 2


class Net(torch.nn.Module):  # one
    size = 3
    # two

    def first(self):
        return 1
        # three
    # four

    @property
    def second(self):
        if self.size:
            return 2
        elif LOWEST:
            return 3
        else:
            pass

    def forward(self, x):
        y = 1
        z = 2
        for _ in range(3):
            a = 1
            b = 2
            x = x.cuda(); y = 1
        torch.cuda.synchronize()
        return x


def last():
    with torch.no_grad():
        a = 1
        b = 2
"""


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Calling it has LibCST read whole files from then on."""
    return lambda: monkeypatch.setattr(migrator.tree, "unconcerned", lambda *_: [])


SOURCES = {
    "as it is": LONG,
    "with tabs": LONG.replace("    ", "\t"),
    "two blanks": LONG.replace("    ", "  "),
    "carriage returns": LONG.replace("\n", "\r\n"),
    "form feeds": LONG.replace("\n\n", "\n\f\n"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_left_out_changes_nothing(name: str, whole: Callable[[], None]) -> None:
    before = run(SOURCES[name])
    assert before.changed
    whole()
    assert run(SOURCES[name]).source == before.source


def test_so_it_is_in_all_examples(whole: Callable[[], None]) -> None:
    """As one file each, between statements that no edit concerns."""
    examples = [example for rule in registry().rules.values() for example in rule.examples]
    texts = [example.before for example in examples if example.path.endswith(".py")]
    sources = [f"{LONG}\n{text}\n{LONG}" for text in texts if _stands_alone(text)]
    before = [run(source).source for source in sources]
    whole()
    assert [run(source).source for source in sources] == before


def test_most_of_a_file_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    made = Abridged.__init__

    def note(self: Abridged, *given: object) -> None:
        made(self, *given)  # type: ignore[arg-type]
        read.append(self.text)

    monkeypatch.setattr(Abridged, "__init__", note)
    lines = "\n".join(f"value_{n} = {n}" for n in range(1000))
    run(f"import torch\n{lines}\nx = torch.ones(1).cuda()\n{lines}\n")
    assert read
    assert all(len(text) < 200 for text in read)


def _stands_alone(text: str) -> bool:
    try:
        ast.parse(f"{LONG}\n{text}\n{LONG}")
    except SyntaxError:
        return False
    return "__future__" not in text
