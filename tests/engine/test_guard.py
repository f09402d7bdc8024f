"""The guard: a fault in the editor costs a file its migration, never its meaning."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

import pytest
from helpers import errors, outcomes, run

import migrator.tree
from migrator.diagnostics import SourceMap
from migrator.edits import EditCall, join_edits
from migrator.pipeline.result import Result
from migrator.tree import Tree, UnplacedEdit, apply

SOURCE = """\
import torch

def load(path, count=3):
    a = torch.ones(count).cuda()
    b = read(path)
    torch.cuda.synchronize()
    return a, b

class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = self.layer(x.cuda())
        return x
"""

FAULTS: dict[str, Callable[[str], str]] = {
    "a statement is lost": lambda text: text.replace("    b = read(path)\n", ""),
    "a statement is doubled": lambda text: text.replace(
        "    b = read(path)\n", "    b = read(path)\n" * 2
    ),
    "another statement is deleted": lambda text: text.replace("return a, b", "pass"),
    "two statements change places": lambda text: text.replace(
        "        return x\n", ""
    ).replace("        for _", "        return x\n        for _"),
    "a block moves out": lambda text: text.replace("        return x", "            return x"),
    "a number changes": lambda text: text.replace("range(2)", "range(3)"),
    "a default changes": lambda text: text.replace("count=3", "count=4"),
    "an edit is made elsewhere": lambda text: text.replace("read(path)", 'read(path).to("jax")'),
    "an edit brings something else": lambda text: text.replace('x.to("jax")', 'x.to("cpu")'),
    "an edit loses its receiver": lambda text: text.replace('x.to("jax")', 'y.to("jax")'),
    "an argument is lost": lambda text: text.replace("ones(count)", "ones()"),
    "a base class is lost": lambda text: text.replace("Net(torch.nn.Module)", "Net"),
    "a function is renamed": lambda text: text.replace("def load", "def loads"),
    "a statement is put in": lambda text: f"{text}torch.manual_seed(0)\n",
    "a statement of a block is put in": lambda text: text.replace(
        "    b =", "    print()\n    b ="
    ),
}  # fmt: skip


def run_damaged(source: str, damage: Callable[[str], str], patch: pytest.MonkeyPatch) -> Result:
    """What comes back where the editor does something else to the text than was asked for."""

    def damaged(*arguments: object) -> str:
        text = apply(*arguments)  # type: ignore[arg-type]
        assert damage(text) != text, text
        return damage(text)

    patch.setattr(migrator.tree, "apply", damaged)
    return run(source)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_editor_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not errors(run(SOURCE))
    result = run_damaged(SOURCE, FAULTS[fault], monkeypatch)
    assert result.source == SOURCE.encode()
    assert [d.code for d in errors(result)] == ["ERR003"]
    assert "internal error" in errors(result)[0].message
    assert "send the maintainers this file" in errors(result)[0].message


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="f-strings nest any quotes")
def test_an_edit_that_does_not_parse_is_withdrawn_alone() -> None:
    result = run("import torch\nx = x.cuda()\ny = f'{f\"{x.cuda()}\"}'\n")
    assert not errors(result)
    assert [outcome for _, outcome, _ in outcomes(result)] == ["rewritten", "reported"]
    assert result.source.startswith(b"import torch\nx = x.to(")
    assert b"y = f'{f\"{x.cuda()}\"}'" in result.source


def test_an_edit_that_does_not_parse_on_any_version_is_withdrawn_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*arguments: object) -> str:
        return apply(*arguments).replace('y.to("jax")', 'y.to("jax"')  # type: ignore[arg-type]

    monkeypatch.setattr(migrator.tree, "apply", damaged)
    result = run("import torch\nx = x.cuda()\ny = y.cuda()\n")
    assert not errors(result)
    assert [outcome for _, outcome, _ in outcomes(result)] == ["rewritten", "reported"]
    assert result.source == b'import torch\nx = x.to("jax")\ny = y.cuda()\n'


def test_edits_of_one_call_are_made_together() -> None:
    """By two rules, say; of two that contradict each other, one is not made, and is named."""
    source = "f(a, b=1, c=2, d=3)\n"
    call = ast.parse(source).body[0].value  # type: ignore[attr-defined]
    first, _, third = call.keywords
    edits = join_edits([
        EditCall(call, drop=[first]),
        EditCall(call, rename={"c": "e"}),
        EditCall(call, function="g", put={"d": "4"}),
    ])  # fmt: skip
    tree, text = Tree(source), SourceMap(source)
    assert apply(tree, text, edits) == "g(a, e=2, d=4)\n"
    contrary = join_edits([EditCall(call, drop=[third]), EditCall(call, put={"d": "4"})])
    with pytest.raises(UnplacedEdit) as unplaced:
        apply(tree, text, contrary)
    assert unplaced.value.edits == contrary[1:]
