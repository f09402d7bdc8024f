"""Advice: what is said of code that is right, and what only looks like it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import REPOSITORY, TARGETS, cli, constructs, run, write_tree

from migrator.diagnostics import Diagnostic, Severity
from migrator.registry import registry
from migrator.rule import Rule
from tests.analysis.advised import FOUND, LOOK_ALIKES, in_forward, in_loop

PRELUDE = """import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = Net().cuda()
"""


def advice(source: str, target: str = "torch_xla", **options: Any) -> list[Diagnostic]:
    result = run(PRELUDE + source, target, **options)
    return [d for d in result.diagnostics if d.severity is Severity.ADVICE]


def _output(run: subprocess.CompletedProcess[bytes]) -> str:
    return run.stdout.decode()


def codes(source: str, target: str = "torch_xla") -> set[str]:
    return {d.code for d in advice(source, target) if d.code.startswith("ADV")}


def _cases(table: dict[str, list[str]]) -> list[object]:
    return [
        pytest.param(code, source, id=f"{code}-{number}")
        for code, sources in table.items()
        for number, source in enumerate(sources)
    ]


@pytest.mark.parametrize(("code", "source"), _cases(FOUND))
def test_what_is_found(code: str, source: str) -> None:
    assert code in codes(source)


@pytest.mark.parametrize(("code", "source"), _cases(LOOK_ALIKES))
def test_what_only_looks_like_it(code: str, source: str) -> None:
    assert code not in codes(source)


def test_each_code_has_both() -> None:
    known = {code for code in registry().rules if code.startswith("ADV")}
    assert known == set(FOUND) == set(LOOK_ALIKES)


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        (in_forward("x = x[x > 0].sum()"), "torch.where(x > 0, x, 0).sum() is the same"),
        (
            in_forward("mask = x > 0", "x = self.loss(x)[mask].mean()"),
            "torch.where(mask, self.loss(x), 0).sum() / mask.sum() is the same",
        ),
        (
            in_forward("try:", "    assert (x > 0).all()", "finally:", "    print(n)"),
            "after the step",
        ),
        (in_forward("if (x > 0).all():", "    print(n)", "    raise ValueError"), "after the step"),
        (in_forward("if not torch.all(x > 0):", "    raise SystemExit"), "check it after the step"),
        (in_forward("if (x > 0).all():", "    x = -x"), "use torch.where"),
        (in_loop("if not torch.isfinite(loss):", "    sys.exit(1)"), "check every N iterations"),
    ],
)
def test_the_cure_is_named(source: str, cure: str) -> None:
    (said,) = advice(source)
    assert cure in said.message


def test_assertions_in_models_get_advice_where_the_runtime_reads_them_at_once() -> None:
    source = in_forward("assert (x > 0).all()", "assert x.min() > 0, n")
    assert not advice(source, "torchax")
    assert ["after the step" in said.message for said in advice(source, "torch_xla")] == [True] * 2


# ---- the same place is advised on once -----------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_advice_is_no_construct_and_changes_nothing(target: str) -> None:
    source = in_loop("total += loss.item()")
    plain = run(PRELUDE, target)
    result = run(PRELUDE + source, target)
    assert len(constructs(result)) == len(constructs(plain))
    assert result.source.decode().endswith(source)
    (said,) = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert (said.outcome, said.construct, said.range.line) == (None, "loss.item()", 11)


def test_a_line_is_advised_on_once() -> None:
    (said,) = advice(in_loop("print(loss.item(), out.mean().item(), float(out.sum()))"))
    assert said.construct == "loss.item()"
    (said,) = advice(in_forward("if x.max().item() > 1:", "    x = x / 2"))
    assert (said.code, said.construct) == ("ADV007", "x.max().item() > 1")


def test_only_where_operations_are_recorded_a_step_can_be_divided() -> None:
    """Elsewhere a read in the middle waits as any other does."""
    source = (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n"
        "    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
        "    total += loss.item()\n    loss.backward()\n    optimizer.step()\n"
    )
    said = {target: {d.code for d in advice(source, target)} for target in (*TARGETS, "torch_tpu")}
    assert said == {"torchax": {"TRN005"}, "torch_xla": {"TRN005"}, "torch_tpu": {"ADV003"}}


def test_float64_is_what_the_target_makes_of_it() -> None:
    source = in_forward("x = x.double()")
    assert "becomes float32" in advice(source, "torchax")[0].message
    assert "emulated" in advice(source, "torch_xla")[0].message


def test_constants_of_a_compiled_program_cost_nothing() -> None:
    assert not codes(FOUND["ADV008"][0], "torchax")


# ---- where it is said ----------------------------------------------------------------------------


def test_only_of_programs_that_use_a_device(tmp_path: Path) -> None:
    loop = PRELUDE + in_loop("total += loss.item()")
    on_cpu = loop.replace(".cuda()", "")
    tree = {"gpu.py": loop, "cpu.py": on_cpu, "tests/check.py": loop}
    write_tree(tmp_path, tree)
    text = _output(cli(".", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert re.findall(r"(\S+\.py):\S+  ADV003", text) == ["gpu.py"]


def test_switched_off() -> None:
    source = in_loop("total += loss.item()  # tpu-migrate: ignore[ADV003]")
    assert not advice(source)
    assert not advice("# tpu-migrate: ignore-file[ADV]\n" + in_loop("total += loss.item()"))
    assert not advice(in_loop("total += loss.item()"), ignore=("ADV",))
    assert advice(in_loop("total += loss.item()"), ignore=("ADV001",))
    branch = in_forward("if x.sum() > 0:", "    x = -x  # tpu-migrate: ignore[ADV007]")
    # the comment is on another line, and is said to do nothing
    assert [d.code for d in advice(branch)] == ["ADV007", "SUP001"]


def test_the_terminal_is_brief(tmp_path: Path) -> None:
    reads = [f"total{n} += loss.item()" for n in range(8)]
    write_tree(tmp_path, {"a.py": PRELUDE + in_loop(*reads)})
    text = _output(cli("a.py", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert text.count("ADV003") == 1 and "a.py:11:15  ADV003  loss.item()" in text
    assert "also 7 places: 12:15, 13:15, 14:15, 15:15, 16:15, …" in text


def test_the_same_in_many_files_is_said_once(tmp_path: Path) -> None:
    for number in range(8):
        name = f"loss{number}"
        source = in_loop(f"{name} = F.mse_loss(out, y)", f"total += {name}.item()")
        (tmp_path / f"a{number}.py").write_text(PRELUDE + source)
    text = _output(cli(".", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert text.count("ADV003") == 1
    assert "and the same in a1.py, a2.py and 5 more" in text


def test_strict_counts_it(tmp_path: Path) -> None:
    source = "import torch\nfrom . import other\nwith torch.autocast('cpu'):\n    f(x)\n"
    source += "dtype = torch.float16\n"
    write_tree(tmp_path, {"a.py": source})
    assert cli("a.py", "--target", "torchax", "--check", cwd=tmp_path).returncode == 0
    strict = ("a.py", "--target", "torchax", "--check", "--strict")
    assert cli(*strict, cwd=tmp_path).returncode == 1
    assert cli(*strict, "--ignore", "ADV", cwd=tmp_path).returncode == 0


# ---- the documentation ---------------------------------------------------------------------------

_PAGE = (REPOSITORY / "docs" / "advice.md").read_text()
_ADVICE = [
    rule
    for rule in registry().rules.values()
    if rule.framework == "torch" and {kind for kind, *_ in rule.handlers} == {"advice"}
]


@pytest.mark.parametrize("rule", _ADVICE, ids=lambda rule: rule.code)
def test_what_the_page_shows_as_better_is_better(rule: Rule) -> None:
    before, *better = (run(example.before, "torch_xla") for example in rule.examples)
    assert rule.code in {d.code for d in before.diagnostics}
    for result in better:  # also the code of the others, which only looks alike
        assert result.changed and not [
            d for d in result.diagnostics if d.severity is Severity.ADVICE
        ]
    assert f"[{rule.code}](rules/{rule.code}.md)" in _PAGE


@pytest.mark.parametrize(
    "line",
    [
        "preds = torch.cat((preds, model(x).detach().cpu()), 0)",
        "out = model(x).cpu(); loss = criterion(out, y); total += loss.item()",
        "half = model(x).cpu().to(torch.float16)",
    ],
)
def test_what_is_on_the_host_already_is_nobodys_business(line: str) -> None:
    source = (
        "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\ncriterion = torch.nn.MSELoss()\n"
        f"total = preds = 0\nfor x, y in data:\n    {line}\n"
    )
    found = [d.code for d in run(source).diagnostics if d.code in ("ADV002", "ADV010")]
    reads = [d for d in run(source).diagnostics if d.construct.endswith("loss.item()")]
    assert not found and not reads
