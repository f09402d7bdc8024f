"""Tiny apps on the real target of this environment, down to the numbers and the precision."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from target import TARGET, needs_libtpu
from tiers import thorough_on

from migrator.verify import verify_app, verify_script
from migrator.verify.command import verify_command
from migrator.verify.compile_for_tpu import with_parts_as_instructions
from migrator.verify.in_target_python import ask
from migrator.verify.verify_result import VerifyResult

from .support import APP_TOML, GOLDEN, GRAPH, Checkout, copy_as_migration, writing

# A float32 dot and a convolution on the target; HIGHEST is asked for only where PRECISE is true.
PRODUCTS = {
    "torchax": """
import jax, torch, torchax
torchax.enable_globally()
if PRECISE:
    jax.config.update("jax_default_matmul_precision", "highest")
device = "jax"
""",
    "torch_xla": """
import torch, torch_xla, torch_xla.backends
if PRECISE:
    torch_xla.backends.set_mat_mul_precision("highest")
device = torch_xla.device()
""",
}
USE = """
a = torch.ones(8, 8, device=device)
w = torch.ones(1, 1, 3, 3, device=device)
torch.nn.functional.conv2d((a @ a)[None, None], w).cpu()
"""


def app(checkout: Checkout, precise: bool) -> None:
    before = f"PRECISE = {precise}\n{PRODUCTS[TARGET]}{USE}"
    checkout.script(writing(GOLDEN, before))


def verify() -> VerifyResult:
    return verify_app("tiny", TARGET, python=Path(sys.executable), migrate=copy_as_migration)


TRAINED = """
import torch
net = torch.nn.Linear(2, 2).cuda()
net(torch.ones(3, 2, device="cuda")).sum().backward()
"""


@thorough_on("torch_xla")
def test_an_app_that_disagrees_with_its_golden_is_followed_step_by_step(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"y": ("F32", [2, 2], [1.0, 2.0, 3.0, 5.0])}
    checkout.script(writing(wrong, TRAINED))
    monkeypatch.chdir(checkout.app.parent.parent)
    how = ["--target", TARGET, "--python", sys.executable, "--bisect", "--json"]
    found = CliRunner().invoke(verify_command, ["tiny", *how])
    assert found.exit_code == 1, found.output
    app, script = json.loads(found.stdout)
    assert not app["passed"] and script["passed"], "what differs from its golden is the app itself"
    assert {f["kind"] for f in script["stepwise"]["findings"]} >= {"output", "loss", "start"}


def test_equal_numbers_at_highest_precision_pass(checkout: Checkout) -> None:
    app(checkout, precise=True)
    result = verify()
    assert result.exit_code == 0, result
    assert result.compared == 1 and result.outputs[0].max_abs == 0
    (time,) = result.times
    assert (time.first, time.later, time.golden_first, time.golden_later) == (2, 0.25, 0.5, 0.01)
    report = result.precision
    assert report is not None
    assert (report.count_dots, report.count_convs, report.offenders) == (1, 1, [])
    if TARGET == "torchax" and sys.platform == "linux":
        assert (report.compiled, report.compilable) == (2, 2), report.note
        assert "compiled for, not run on, a TPU v6e" in "\n".join(report.lines())


def test_float32_left_to_the_tpus_default_is_caught(checkout: Checkout) -> None:
    app(checkout, precise=False)
    result = verify()
    assert result.exit_code == 1
    assert all(output.passed for output in result.outputs)  # the CPU's numbers cannot show it
    assert result.precision is not None and len(result.precision.offenders) == 2
    assert "float32 is not kept: products below the highest precision" in result.problems


@thorough_on("torch_xla")
def test_an_app_that_wants_less_precision_is_not_held_to_it(checkout: Checkout) -> None:
    checkout.toml('precision = "default"\n' + APP_TOML)
    app(checkout, precise=False)
    assert verify().exit_code == 0


def test_a_script_that_does_not_use_the_target_fails(checkout: Checkout) -> None:
    checkout.script(writing(GOLDEN))
    result = verify()
    assert result.exit_code == 1
    assert result.problems == [f"no program was compiled: the script did not use {TARGET}"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.0, 2.0, 3.0, 4.1], "1 of 4 elements beyond the tolerance"),
        ([1.0, 2.0, 3.0, float("nan")], "1 NaN or Inf, only here"),
    ],
)
def test_other_numbers_fail(checkout: Checkout, values: list[float], reason: str) -> None:
    script = writing({"y": ("F32", [2, 2], values)})
    checkout.script(script.replace("nan,", "float('nan'),"))
    result = verify()
    assert result.exit_code == 1
    assert [output.reason for output in result.outputs] == [reason]


def test_a_damaged_result_fails_and_is_named(checkout: Checkout) -> None:
    checkout.script("import os; os.mkdir('out'); open('out/outputs.safetensors', 'w').write('x')")
    result = verify()
    assert result.exit_code == 1
    assert any("is truncated" in problem for problem in result.problems)


TRAIN = """\
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for i in range(int(sys.argv[1])):
    x, y = torch.randn(4, 3, 8, 8).cuda(), torch.randint(5, (4,)).cuda()
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@needs_libtpu
def test_a_users_script_is_migrated_run_and_compiled_for_a_tpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("other.py").write_text("print 'of Python 2, and none of its business'\n")
    python = Path(sys.executable)
    result = verify_script(Path("train.py"), ["3"], TARGET, python=python, compile_for="v6e-8")
    assert result.exit_code == 0, result
    assert result.tpu is not None and result.tpu.note is None
    step = max(result.tpu.compiled_steps, key=lambda step: step.in_place)  # the first warms up
    # convolution and linear layer, each with two gradients; the images need none
    assert (step.products, step.below, step.lowered, step.collectives) == (5, [], [], {})
    parts = step.arguments + step.outputs - step.in_place + step.temporaries + step.code
    assert step.hbm == parts and step.in_place > 0
    assert step.flops > 2 * 4 * 36 * 8 * 27  # the first convolution alone
    assert step.accessed > step.arguments
    assert all(other.error is None for other in result.tpu.compiled)


@needs_libtpu
def test_programs_of_torch_xla_are_compiled_for_a_tpu(tmp_path: Path) -> None:
    graph = tmp_path / "module_0007.SyncTensorsGraph.7.before_optimizations.txt"
    graph.write_text(GRAPH.format(7), encoding="utf-8")
    arguments = ("v6e:2x2", "60", str(graph))
    answer = ask(Path(sys.executable), "compile_for_tpu.py", arguments, timeout=120, cwd=tmp_path)
    assert answer["error"] is None
    (facts,) = answer["programs"]
    assert facts["error"] is None and facts["below"] == [] and facts["flops"] >= 2 * 4 * 8 * 8
    assert facts["in_place"] > 0  # what is overwritten is, as torch_xla says


PARTS = """\
  %sums.6 = (f32[8,64]{1,0}, /*index=1*/f32[8]{0:T(128)}) reduce(%a.1, %b.2, %c.3), to_apply=%r
  ROOT %scaled.7 = f32[8]{0} multiply(%sums.6#1, %sums.6#1), metadata={op_name="a#1"}
"""


def test_parts_of_a_tuple_are_written_as_the_compilers_xla_reads_them() -> None:
    """Each program with a layer's normalization was refused: torch_tpu's XLA is newer."""
    tuple_line, root = PARTS.splitlines()
    assert with_parts_as_instructions(PARTS).splitlines() == [
        tuple_line,
        "  %sums.6_part_1 = f32[8]{0:T(128)} get-tuple-element(%sums.6), index=1",
        root.replace("%sums.6#1", "%sums.6_part_1"),
    ]
    assert with_parts_as_instructions(tuple_line) == tuple_line


ATTEND = """\
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (2, 32)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


net = Net().cuda().to(torch.bfloat16).eval()
with torch.no_grad():
    for tokens in (64, 4096):
        for _ in range(3):
            print(net(torch.randn(1, tokens, 64, dtype=torch.bfloat16).cuda()).float().std())
"""


@pytest.mark.thorough
@needs_libtpu
def test_attention_to_many_keys_has_no_scores_in_the_memory_of_a_tpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("attend.py").write_text(ATTEND)
    python = Path(sys.executable)
    result = verify_script(Path("attend.py"), [], TARGET, python=python, compile_for="v6e-1")
    assert result.exit_code == 0, result
    assert result.tpu is not None
    steps = result.tpu.compiled_steps  # the largest first: of 4,096 keys, then of 64
    attended = [step for step in steps if step.flops > 1e7]
    assert steps[: len(attended)] == attended and len(attended) == 2  # the first call, the others
    kernel = {"splash_mha_fwd_no_residuals": 1}
    assert all(step.kernels == kernel for step in attended)
    assert len(steps) >= 4 and not any(step.kernels for step in steps[len(attended) :])
    scores = 2 * 4096**2  # of one of the two heads, in one byte each
    assert all(step.temporaries < scores for step in steps)
    assert "kernels in Net" in "\n".join(result.tpu.lines())


READS = "class Reads(nn.Sequential):\n    def forward(self, x):\n"
READS += "        return super().forward(x if x.sum().item() > 1e9 else x + 0)\n\n\n"


@needs_libtpu
def test_a_model_that_is_not_compiled_is_named_before_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = TRAIN.replace("torch.manual_seed", f"{READS}torch.manual_seed", 1)
    Path("train.py").write_text(text.replace("model = nn.Sequential", "model = Reads"), "utf-8")
    options = ["--target", TARGET, "--python", sys.executable, "--compile-for", "v6e-1"]
    done = CliRunner().invoke(verify_command, ["train.py", *options, "--", "4"])
    lines = done.output.splitlines()
    (told,) = [n for n, line in enumerate(lines) if line.startswith("Not compiled as a whole: ")]
    assert "Reads with gradients" in lines[told]
    assert told < next(n for n, line in enumerate(lines) if line.startswith("Compiled for, not"))
    assert lines[-1].endswith("it was run and compiled in parts; no numbers were compared")
    assert str(tmp_path / "train.py") in done.output and "tpu-migrate-train" not in done.output
    assert not any(" calls, " in line and ";" in line.partition("(Abstract")[0] for line in lines)
