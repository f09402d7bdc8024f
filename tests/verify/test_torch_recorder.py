"""The recorder and programs that end, fail, wait, start processes or write elsewhere."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from tiers import thorough_but

from migrator.frameworks import find_framework
from migrator.verify.goldens import read_golden
from migrator.verify.recordings import Recording, RecordSettings, record_run
from migrator.verify.verify_errors import VerifyError
from tests.verify.support import record

TORCH = find_framework("torch")

STEP = """\
import os, random, signal, sys, time
import torch
from torch import nn
net = nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(x):
    loss = net(x.cuda()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(f"loss {loss.item():.6f}")
"""


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    # a short name: workers of loaders have sockets there, whose paths have 107 characters at most
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def losses(recording: Recording) -> list[float]:
    return [event["value"] for event in recording.events if event["kind"] == "loss"]


@pytest.mark.parametrize(("text", "line"), [
    ("name = input('which? ')", "t.py:1: it asks for input, and there is none"),
    ("import torch\ntorch.load('data/x.pt')", "t.py:2: FileNotFoundError: .*start from a folder"),
    ("import torch\ntorch.load('../data/x.pt')", "t.py:2: FileNotFoundError: .*an absolute path"),
    ("import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()",
     "exit code 2 \\(its own arguments go behind --, as in `-- --epochs 1`\\)\nusage: "),
    ("import nosuch.x", "t.py:1: ModuleNotFoundError: .*PYTHON.* nosuch, or the package"),
    ("import torch._six", "t.py:1: ModuleNotFoundError: .*torch [0-9.]+.* has no such module"),
    ("from . import x", "t.py:1: ImportError: .*-m t\\)"),
    ("import numpy\nx = numpy.Inf", "t.py:2: AttributeError: .*\\(ruff check --select NPY --fix"),
    ("import numpy\nx = numpy.float(1)", "t.py:2: AttributeError: .*\\(ruff check --select NPY"),
    ("x = (", "t.py:1: SyntaxError"),
    ("raise SystemExit('no data')", "exit code 1\nno data"),
    ("import os; os._exit(3)", "exit code 3"),
    ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
])  # fmt: skip
def test_an_original_that_fails_is_told_by_its_line(text: str, line: str) -> None:
    line = line.replace("PYTHON", re.escape(sys.executable))
    with pytest.raises(VerifyError, match=f"the original fails: {line}") as error:
        record(text)
    assert "recorder" not in str(error.value)
    assert not Path("..", "golden").exists()


PENALTY = """\
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.ParameterList([torch.randn(8, 4), torch.randn(1, 8)])
    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.w[0]).tanh(), self.w[1])
net = {net}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(5, 4, requires_grad=True)
given = net(x)
g, = torch.autograd.grad(given.sum(), x, create_graph=True)
loss = (g.norm(dim=1) - 1).pow(2).mean()
loss.backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    "net", ["Net()", "nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))"]
)
def test_rounding_moves_little_through_a_gradients_gradient(net: str) -> None:
    record(PENALTY.replace("{net}", net), roundings=2)
    golden = read_golden(Path("..", "golden"))
    (loss,) = losses(golden.first)
    (norms,) = (e["norms"] for e in golden.first.events if e["kind"] == "gradients")
    for rounded in golden.rounded:
        assert losses(rounded) == pytest.approx([loss], rel=1e-5)  # the same, perhaps, by chance
        (others,) = (e["norms"] for e in rounded.events if e["kind"] == "gradients")
        assert others != norms and others == pytest.approx(norms, rel=1e-5)


LOADER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

blur = nn.Conv2d(3, 1, 5, bias=False){moved}.requires_grad_(False)
nn.init.ones_(blur.weight)

class Images(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        return blur(torch.ones(1, 3, 8, 8){moved})[0].floor()  # an image has whole numbers

torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for images in DataLoader(Images(), 4):
    loss = net(images.cuda()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.mark.parametrize("moved", ["", ".cuda()"])
def test_what_a_loader_computes_on_the_cpu_is_not_rounded(moved: str) -> None:
    """Whole numbers of an image would differ by 1, and hide a fault as large as that."""
    record(LOADER.replace("{moved}", moved), roundings=1)
    golden = read_golden(Path("..", "golden"))
    first, rounded = losses(golden.first)[0], losses(golden.rounded[0])[0]
    apart = abs(rounded - first) / first
    assert apart > 1e-4 if moved else 0 < apart < 1e-5


FLOW = """\
import torch
torch.manual_seed(0)
w = torch.linalg.qr(torch.randn(8, 8))[0]
w[:, 0] *= w.det().sign()
w.requires_grad_()
optimizer = torch.optim.SGD([w], lr=1e-3)
loss = 1000 * {logdet}
loss.backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    "logdet", ["torch.logdet(w)", "w.slogdet()[1]", "torch.linalg.det(w).log()"]
)
def test_of_a_determinant_rounding_moves_the_matrix(logdet: str) -> None:
    """That of a rotation is 1, and its logarithm nothing but rounding."""
    record(FLOW.replace("{logdet}", logdet), roundings=2)
    golden = read_golden(Path("..", "golden"))
    moved = [abs(losses(rounded)[0] - losses(golden.first)[0]) for rounded in golden.rounded]
    assert 1e-6 < max(moved) < 1e-2


def test_a_loss_is_what_it_was_before_a_scaler_multiplied_it() -> None:
    text = STEP.replace("loss.backward(); optimizer.step()", "scaler.scale(loss).backward(); "
                        "scaler.step(optimizer); scaler.update()")  # fmt: skip
    text += """\
scaler = torch.cuda.amp.GradScaler()
step(torch.ones(4, 3))
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
loss = net(torch.ones(4, 3).cuda()).pow(2).mean()
ShardedGradScaler().scale(loss).backward()
print(f"loss {loss.item():.6f}")
"""
    found, _ = record(text)
    printed = "".join(f"loss {loss:.6f}\n" for loss in losses(found))
    assert found.printed.endswith(printed) and len(losses(found)) == 2 and found.steps == 1


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)", ""])
def test_a_program_that_moves_writes_and_ends_somehow(
    end: str, request: pytest.FixtureRequest
) -> None:
    # not where temporary files are, nor below /dev
    elsewhere = tempfile.TemporaryDirectory(dir=request.config.rootpath)
    request.addfinalizer(elsewhere.cleanup)
    outside = Path(elsewhere.name, "elsewhere.pt")
    text = f"{STEP}step(torch.ones(2, 3))\nos.makedirs('out'); os.chdir('out')\n"
    text += f"torch.save(net.state_dict(), 'a.pt'); torch.save(1, {str(outside)!r})\n{end}\n"
    found, notes = record(text)
    assert found.steps == 1 and [f["name"] for f in found.files] == ["out/a.pt"]
    assert {e["kind"] for e in found.events} == {
        "start", "input", "output", "loss", "gradients", "weights", "end",
    }  # fmt: skip
    assert notes == [f"it writes outside of its folder, so not to a copy: {outside}"]
    assert [p.name for p in Path().iterdir()] == ["t.py"]


def test_a_scaler_skips_no_step() -> None:
    """Its first scale is 65,536, by which these gradients overflow in float16."""
    found, _ = record("""\
import torch
net = torch.nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.cuda.amp.GradScaler()
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        out = net(torch.ones(4, 3).cuda())
    scaler.scale((out.float() - 2).pow(2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
""")
    assert found.steps == 2 and len(losses(found)) == 2


def test_modules_without_parameters_do_not_end_a_quick_run() -> None:
    """They may make the data, before there is an optimizer."""
    calls = "squash = nn.Tanh()\nfor _ in range(8):\n    x = squash(torch.ones(2, 3))\n"
    found, _ = record(f"{STEP.replace('net = ', f'{calls}net = ', 1)}step(x)\n", quick=True)
    assert found.steps == 1 and len(losses(found)) == 1


def test_a_script_that_imports_from_above_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pkg").mkdir()
    Path("model.py").write_text("size = 3\n", "utf-8")
    monkeypatch.chdir("pkg")
    found, _ = record(f"import sys\nsys.path.append('..')\nfrom model import size\n{STEP}"
                      "step(torch.ones(2, size))\ntorch.save(size, 'a.pt')\n")  # fmt: skip
    assert found.steps == 1 and [f["name"] for f in found.files] == ["pkg/a.pt"]


@pytest.mark.parametrize("ignores", thorough_but([True], [False, True]))
def test_what_was_recorded_until_the_time_was_over_is_kept(
    ignores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.verify.recordings._GRACE", 1.0)
    text = STEP + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" * ignores
    text += "step(torch.ones(2, 3)); step(torch.ones(2, 3))\nwhile True:\n    time.sleep(0.1)\n"
    found, notes = record(text, timeout=8.0)
    assert found.was_stopped and len(losses(found)) == 2
    assert notes[0].startswith("the original was stopped by --timeout, after")
    assert {"start", "output", "loss"} < {event["kind"] for event in found.events}


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_the_memory_limit_is_named_where_it_ends_a_program() -> None:
    with pytest.raises(VerifyError, match=r"t\.py:\d+: out of memory \(--memory 3\)$"):
        record(f"{STEP}step(torch.ones(2, 3))\nx = torch.ones(2**30)\n", memory=3 * 2**30)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_are_not_recorded_and_draw_the_same_in_all_runs(how: str) -> None:
    text = f"""\
{STEP}
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.norm = nn.Linear(3, 3)
    def __len__(self):
        return 8
    def __getitem__(self, number):
        return self.norm(torch.randn(3) + random.random()).detach()
if __name__ == "__main__":
    for x in torch.utils.data.DataLoader(
        Data(), batch_size=4, num_workers=2, shuffle=True, multiprocessing_context={how!r}
    ):
        step(x)
"""
    # a spawned worker imports the script, where no GPU is
    text = text.replace("net = nn.Linear(3, 2).cuda()", "net = nn.Linear(3, 2)")
    text = text.replace("x.cuda()", "x")
    first, notes = record(text)
    again, _ = record(text)
    assert notes == [] and first.steps == 2
    assert losses(first) == losses(again) and len(losses(first)) == 2
    assert {event["name"] for event in first.events} == {"Linear", "loss", "SGD"}


def test_what_names_the_default_generator_draws_the_same_in_all_runs() -> None:
    """`random_split` names it; its state is the back end's."""
    split = "print(0.5, torch.utils.data.random_split(range(40), [20, 20])[0].indices)\n"
    other = "torch.default_generator.set_state(torch._C.Generator().manual_seed(5).get_state())\n"
    one, two = (record(f"import torch\n{start}{split}")[0].printed for start in ("", other))
    assert one == two


def test_processes_of_its_own_are_counted() -> None:
    text = f"{STEP}step(torch.ones(2, 3))\nif os.fork() == 0:\n    step(torch.ones(2, 3))\n"
    text += "    os._exit(0)\nos.wait()\n"
    found, notes = record(text)
    assert len(losses(found)) == 1
    assert notes == ["it starts processes of its own (1): what they compute is not seen"]


def test_what_a_program_compiles_is_followed_as_it_was_written() -> None:
    found, _ = record(f"{STEP}net = torch.compile(net)\nstep(torch.ones(2, 3))\n")
    assert len(losses(found)) == 1 and not found.ended


def test_a_function_in_torchscript_makes_tensors() -> None:
    text = f"""{STEP}
@torch.jit.script
def noise(like: torch.Tensor):
    return torch.zeros_like(like) + torch.ones(like.size(0), 1, device=like.device)
step(noise(torch.ones(2, 3).cuda()))
"""
    found, notes = record(text)
    assert notes == [] and len(losses(found)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="the interpreter is a shell script")
def test_a_gpu_that_is_there_is_used(folder: Path) -> None:
    """Nothing takes its place: without a driver the script fails as it does with one."""
    (folder / "with_gpu.py").write_text(
        "import runpy, sys, torch\n"
        "torch.cuda.is_available = lambda: True\n"
        "torch.cuda.get_device_name = lambda *_: 'GPU'\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "with_gpu.py"} "$@"\n')
    python.chmod(0o755)
    Path("t.py").write_text("import torch\nprint(torch.ones(3).cuda())\n", encoding="utf-8")
    here, out = Path.cwd(), folder / "recording"
    _, found = record_run(
        python,
        "t.py",
        [],
        here,
        out,
        RecordSettings(),
        framework=TORCH,
        stand_in=True,
        original=here,
    )
    assert found.ended.startswith("t.py:2: ")
    assert "CUDA" in found.ended or "NVIDIA" in found.ended


def test_a_row_for_padding_is_followed_operation_by_operation(folder: Path) -> None:
    """It is a view that was made and written to without gradients: autograd tells no more of it."""
    text = """\
import torch
words = torch.nn.Embedding(4, 2, padding_idx=0)
optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
words(torch.tensor([0, 1])).sum().backward()
optimizer.step()
"""
    Path("t.py").write_text(text, encoding="utf-8")
    here, out = Path.cwd(), folder / "recording"
    _, found = record_run(
        Path(sys.executable), "t.py", [], here, out, RecordSettings(), framework=TORCH,
        stand_in=True, original=here, focus=0,
    )  # fmt: skip
    assert not found.ended
    kinds = {(event["kind"], event["name"]) for event in found.events}
    assert {("op", "torch.nn.functional.embedding"), ("grad", "Embedding.weight")} <= kinds


def test_gradients_are_those_that_a_closure_has_made() -> None:
    """As Lightning trains; and modules that hash by what they do not have yet are watched."""
    closed = """\
class Metric(nn.Module):
    def __hash__(self):
        return hash(self.later)
Metric()
def step(x):
    def closure():
        optimizer.zero_grad()
        loss = net(x.cuda()).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""
    steps = "torch.manual_seed(0)\nstep(torch.ones(2, 3))\nstep(torch.ones(2, 3))\n"
    norms = [
        [event["norms"] for event in record(text)[0].events if event["kind"] == "gradients"]
        for text in (STEP + steps, STEP + closed + steps)
    ]
    assert norms[0] == norms[1] and len(norms[0]) == 2 and all(norms[0])


def test_an_original_does_not_take_a_targets_device() -> None:
    """accelerate takes torch_xla wherever it is installed, unless it is told not to."""
    text = f"{STEP}step(torch.ones(2, 3))\nprint(0.5, os.environ.get('USE_TORCH_XLA'))\n"
    assert "0.5 0\n" in record(text)[0].printed


def test_what_numba_logs_of_its_compilations_is_not_asked_for() -> None:
    text = "import logging, sys\nlogging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"
    text += "for name in ('numba.core', 'own'):\n    logging.getLogger(name).debug('stack 0.5')\n"
    printed = record(f"import torch\n{text}")[0].printed
    assert "own:stack 0.5\n" in printed and "numba" not in printed


def test_an_original_does_not_get_a_runtime_that_is_installed(folder: Path) -> None:
    """As it is where the migrated program ran: the original would no longer be torch's alone."""
    Path("tpu_runtime.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    recorded, _ = record("import torch\nprint(torch.ones(2).cuda().sum().item())\n")
    assert not recorded.ended and recorded.printed == "2.0\n"
