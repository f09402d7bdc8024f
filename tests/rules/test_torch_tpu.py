"""TorchTPU: programs that choose their device by torch's own words, and still run elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import REPOSITORY, migrated, outcomes, reported, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.targets import find_target

TPU = "torch_tpu"
CHOSEN = 'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'


def tpu(source: str, **options: bool) -> str:
    return migrated(textwrap.dedent(source), TPU, **options)


def test_every_example_of_every_rule() -> None:
    """What it becomes parses, names no other target, and stays in a second run."""
    command = [sys.executable, str(REPOSITORY / "tests/engine/every_example.py"), TPU]
    done = subprocess.run(command, cwd=REPOSITORY / "tests", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["count"]["rewritten"] > 200


def test_a_script_gets_a_device_and_full_precision() -> None:
    text = tpu("import torch\nx = torch.ones(2).cuda()\n", entry=True)
    assert text == (
        "import torch\n"
        "import tpu_runtime\n\n"
        "tpu_runtime.setup()\n\n"
        f"device = {CHOSEN}\n\n"
        "x = torch.ones(2).to(device)\n"
    )


def test_its_own_device_is_used() -> None:
    before = """\
    import torch
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


    def f(x):
        return x.cuda(non_blocking=True) + torch.ones(2, device="cuda")
    """
    after = tpu(before)
    assert after.count(CHOSEN) == 1
    assert "x.to(device, non_blocking=True) + torch.ones(2, device=device)" in after


@pytest.mark.parametrize("taken", ["device = 1", "def f(device): pass", "f = lambda device: 1"])
def test_a_name_that_is_taken(taken: str) -> None:
    text = tpu(f"import torch\n{taken}\nx = torch.ones(2).cuda()\n")
    assert f"accelerator = {CHOSEN}" in text and "x = torch.ones(2).to(accelerator)" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.is_cuda", 'x.device.type in ("cuda", "tpu")'),
        ('device.type == "cuda"', 'device.type in ("cuda", "tpu")'),
        ('"cuda" != device.type', 'device.type not in ("cuda", "tpu")'),
        ('"cuda" in str(device)', '("cuda" in str(device) or "tpu" in str(device))'),
        ('device.type in ("cuda", "mps")', 'device.type in ("cuda", "tpu", "mps")'),
        ('str(device).startswith("cuda")', 'str(device).startswith(("cuda", "tpu"))'),
    ],
)
def test_questions_after_the_device(before: str, after: str) -> None:
    head = "import torch\n\n\ndef f(x, device: torch.device):\n    return "
    assert tpu(f"{head}{before}\n") == f"{head}{after}\n"


def test_what_only_a_gpu_does_is_done_on_one() -> None:
    text = tpu("""\
    import torch
    loader = torch.utils.data.DataLoader(data, pin_memory=True)
    scaler = torch.cuda.amp.GradScaler(enabled=use_amp)
    other = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
    short = torch.GradScaler()
    off = torch.GradScaler(enabled=False)
    """)
    gpu = "torch.cuda.is_available()"
    assert f"DataLoader(data, pin_memory={gpu})" in text
    assert f'scaler = torch.amp.GradScaler("cuda", enabled=use_amp and {gpu})' in text
    assert 'other = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")' in text
    assert f'short = torch.amp.GradScaler("cuda", enabled={gpu})' in text
    assert "off = torch.GradScaler(enabled=False)" in text


def test_what_runs_on_any_accelerator_stays() -> None:
    source = f"import torch\ndevice = {CHOSEN}\ntorch.accelerator.synchronize()\n"
    result = run(source, TPU)
    assert result.source.decode() == source
    assert {outcome for _, outcome, _ in outcomes(result)} == {"kept"}


def test_a_compiled_model_stays_one() -> None:
    assert tpu('import torch\nm = torch.compile(m.cuda(), mode="max-autotune")\n').endswith(
        "m = torch.compile(m.to(device))\n"
    )


def test_what_the_tpu_lacks_is_reported() -> None:
    source = """\
    import torch
    torch.cuda.get_device_capability()
    g = torch.cuda.CUDAGraph()
    """
    assert len(reported(run(textwrap.dedent(source), TPU))) == 2


def test_a_device_with_an_index_keeps_it() -> None:
    """Several GPUs stay several; a process has one TPU, which any index means."""
    head = "import torch\n\n\ndef f(x, rank: int):\n    return "
    for before, after in (
        ('torch.device(f"cuda:{rank}")', 'torch.device(f"{device.type}:{rank}")'),
        ('torch.device("cuda", rank)', "torch.device(device.type, rank)"),
        ('x.to("cuda:%d" % rank)', 'x.to(f"{device.type}:{rank}")'),
        ('x.to("cuda:1")', 'x.to(f"{device.type}:1")'),
        ('x.to("cuda:0")', "x.to(device)"),
        ("x.cuda(rank)", "x.to(rank)"),
        ("x.to(rank)", "x.to(rank)"),
    ):
        assert tpu(f"{head}{before}\n").endswith(f"    return {after}\n")


RANKS = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(main, args=(n,), nprocs=n)
"""


def test_ranks_stay_ranks() -> None:
    text = tpu(RANKS, entry=True)
    for line in (
        "    dist.init_process_group(dist.get_default_backend_for_device(device), rank=rank, ",
        "    if torch.cuda.is_available():\n        torch.cuda.set_device(rank)\n",
        "    model = DDP(torch.nn.Linear(2, 2).to(rank))\n",
        "    n = torch.accelerator.device_count()\n"
        '    if device.type == "tpu":\n'
        "        torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=n)\n"
        "    mp.spawn(main, args=(n,), nprocs=n)\n",
    ):
        assert line in text


def test_a_question_that_only_gpus_are_behind_stays() -> None:
    alone = "import torch\nif torch.cuda.is_available():\n    torch.cuda.set_device(1)\n"
    assert tpu(alone) == alone
    text = tpu(f"{alone}    torch.cuda.synchronize()\n")
    assert text == (
        "import torch\nif torch.accelerator.is_available():\n"
        "    if torch.cuda.is_available():\n        torch.cuda.set_device(1)\n"
        "    torch.accelerator.synchronize()\n"
    )


def test_a_seed_beside_torchs_own_stays() -> None:
    both = "import torch\ntorch.manual_seed(3)\ntorch.cuda.manual_seed_all(3)\n"
    assert tpu(both) == both
    seeded = both.replace("torch.cuda", "np.random.seed(3)\ntorch.cuda")
    far = f"import numpy as np\n{seeded}"
    assert tpu(far) == far


@pytest.mark.parametrize("between", ["", "torch.manual_seed(4)\n",
                                     "torch.manual_seed(3)\nx = torch.rand(3)\n",
                                     "torch.manual_seed(3)\ntrain()\n"])  # fmt: skip
def test_a_seed_of_the_device_leaves_the_generator_of_the_cpu(between: str) -> None:
    text = tpu(f"import torch\n{between}torch.cuda.manual_seed_all(3)\n")
    seeded = "with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(3)\n"
    assert text == f"import torch\n{between}{seeded}"


def test_generators_streams_and_events_are_of_any_accelerator() -> None:
    text = tpu("""\
    import torch
    g = torch.Generator(device="cuda")
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        e = torch.cuda.Event(enable_timing=True)
    torch.cuda.current_stream().wait_stream(s)
    """)
    assert text.endswith(
        "g = torch.Generator(device=device)\n"
        "s = torch.Stream()\n"
        "with s:\n"
        "    e = torch.Event(enable_timing=True)\n"
        "torch.accelerator.current_stream().wait_stream(s)\n"
    )


def test_a_checkpoint_returns_to_where_it_was_saved() -> None:
    text = tpu("""\
    import torch
    x = torch.load("a.pt")
    y = torch.load("a.pt", map_location="cuda")
    model.load_state_dict(torch.load("b.pt"))
    """)
    assert 'x = torch.load("a.pt")' in text
    assert 'y = torch.load("a.pt", map_location=device)' in text
    assert 'torch.load("b.pt", map_location="cpu")' in text


def test_copies_stay() -> None:
    text = tpu("import torch\nnet = torch.nn.DataParallel(net).cuda()\n")
    assert "DataParallel(net).to(device)" in text
    text = tpu("import torch\nnet = torch.nn.DataParallel(one, [0, 1])\nnet.module.cuda()\n")
    assert "net = torch.nn.DataParallel(one, [0, 1])\nnet.module.to(device)\n" in text


def test_names_that_are_written_are_there() -> None:
    """By the inventory of what is installed: internal names of torch_tpu count as absent."""
    known = json.loads(Path(__file__).with_name("torch_tpu_names.json").read_text())["names"]
    rules = [*(REPOSITORY / "rules").glob("*.py"), *registry_words()]
    text = "\n".join(each if isinstance(each, str) else each.read_text() for each in rules)
    used = re.findall(r"\{torch\}\.(tpu(?:\.distributed)?|accelerator|amp)\.(\w+)", text)
    used += [("distributed", name) for name in re.findall(r"\{torch\.distributed\}\.(\w+)", text)]
    assert len(used) > 15
    absent = [(m, name) for m, name in used if name not in known[f"torch.{m}"]["public"]]
    assert set(absent) <= {("tpu", "distributed")}, absent


def registry_words() -> list[str]:
    """The code of all words."""
    words = find_target(TPU).api
    devices = words.devices
    assert devices is not None
    special = [words.device_object, words.on_gpu, words.autocast]
    special += [devices.back_end, devices.launch_environment]
    return [word.code for word in [*words.renames.values(), *special] if word is not None]


XLA = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

device = xm.xla_device()
model = torch.compile(torch.nn.Linear(4, 2).to(device), backend="openxla")
with torch.autocast("xla", dtype=torch.bfloat16):
    loss = model(torch.ones(2, 4).to("xla")).sum()
loss.backward()
xm.optimizer_step(optimizer)
xm.mark_step()
xm.save(model.state_dict(), "a.pt")
"""


def test_a_program_for_torch_xla() -> None:
    text = tpu(XLA, entry=True)
    assert "xla" not in text and "xm." not in text
    assert "model = torch.compile(torch.nn.Linear(4, 2).to(device))" in text
    assert "optimizer.step()" in text and 'torch.save(model.state_dict(), "a.pt")' in text


def test_a_loader_of_torch_xla_still_moves_its_batches() -> None:
    text = tpu(
        "import torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.parallel_loader as pl\n"
        "for x, y in pl.MpDeviceLoader(loader, xm.xla_device()):\n    train(x, y)\n"
    )
    assert "for x, y in tpu_runtime.DeviceLoader(loader):" in text and "xla" not in text
    assert tpu(text) == text


RANKS_OF_XLA = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def main(rank, flags):
    device = xm.xla_device()
    print(xm.get_ordinal(), xm.xrt_world_size())
    LINE


if __name__ == "__main__":
    torch_xla.launch(main, args=(flags,))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("xm.optimizer_step(opt)", "tpu_runtime.optimizer_step(opt)"),
        ("xm.optimizer_step(opt, optimizer_args={'closure': f})",
         "tpu_runtime.optimizer_step(opt, **{'closure': f})"),
        ("xm.mark_step()", ""),
        ("xm.master_print('x', flush=True)",
         "if torch.distributed.get_rank() == 0:\n        print('x', flush=True)"),
        ("xm.save(state, path)",
         "if torch.distributed.get_rank() == 0:\n        torch.save(state, path)"),
        ("xm.rendezvous('end')", "torch.distributed.barrier()"),
        ("xm.all_reduce('sum', [x])", "torch.distributed.all_reduce(x)"),
        ("xm.all_reduce(xm.REDUCE_SUM, [x])", "torch.distributed.all_reduce(x)"),
    ],
)  # fmt: skip
def test_ranks_that_torch_xla_starts_stay_ranks(before: str, after: str) -> None:
    text = tpu(RANKS_OF_XLA.replace("LINE", before), entry=True)
    assert f"get_world_size())\n    {after}".rstrip() in text and "xm." not in text
    assert "tpu_runtime.launch(main, args=(flags,))" in text and "xla" not in text


@pytest.mark.parametrize(
    "line",
    [
        "x = xm.mesh_reduce('x', 1, sum)",
        "xm.reduce_gradients(opt)",
        "xm.broadcast_master_param(model)",
        "x = xm.all_reduce('sum', x)",
        "xm.all_reduce('max', [x])",
        "xm.all_reduce('sum', [x], scale=0.5)",
        "xm.save(state, path, master_only=False)",
        "x = xm.get_local_ordinal()",
        "xm.optimizer_step(opt, groups=[[0]])",
    ],
)
def test_what_ranks_of_torch_xla_do_otherwise_keeps_their_program(line: str) -> None:
    source = RANKS_OF_XLA.replace("LINE", line)
    result = run(source, TPU, entry=True)
    assert result.source.decode() == source and reported(result)


def test_files_of_a_program_of_torch_xla_agree(tmp_path: Path) -> None:
    helper = (
        "import torch_xla.core.xla_model as xm\n\n\ndef share(n):\n"
        "    return n // xm.xrt_world_size()\n"
    )
    main = RANKS_OF_XLA.replace("LINE", "share(8)").replace(
        "import torch_xla\n", "from helper import share\nimport torch_xla\n"
    )
    write_tree(tmp_path / "a", {"helper.py": helper, "main.py": main})
    migrate_paths([tmp_path / "a"], TPU, write=True, allow_dirty=True)
    assert "n // torch.distributed.get_world_size()" in (tmp_path / "a/helper.py").read_text()
    held = main.replace("share(8)", "xm.mesh_reduce('x', share(8), sum)")
    write_tree(tmp_path / "b", {"helper.py": helper, "main.py": held})
    report = migrate_paths([tmp_path / "b"], TPU)
    assert not report.changed and report.diagnostics(Outcome.REPORTED)


def test_tensor_types_are_those_of_any_accelerator() -> None:
    text = tpu("import torch\nTensor = torch.cuda.FloatTensor\nx = y.type(Tensor)\n")
    assert "Tensor = tpu_runtime.FloatTensor\nx = tpu_runtime.cast(y, Tensor)" in text


def test_trainers_take_whichever_accelerator_there_is() -> None:
    text = tpu("import lightning as L\ntrainer = L.Trainer(accelerator='gpu', devices=1)\n")
    assert "L.Trainer(accelerator='auto', devices=1)" in text
    source = "import lightning as L\ntrainer = L.Trainer(accelerator='gpu', devices=4)\n"
    assert len(reported(run(source, TPU))) == 1  # set-up shows it one TPU
    source = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    assert not reported(run(source, TPU))  # set-up tells it


def test_operators_that_only_it_lacks() -> None:
    source = "import torch\ny = x.to_sparse_bsr()\nz = torch.quantize_per_tensor(x, 1, 0, d)\n"
    assert len(reported(run(source, TPU))) == 2
    assert not reported(run(source, "torchax"))


SPARSE = (
    "x.to_sparse_csr()", "x.to_sparse_coo()", "torch.sparse.mm(x, y)", "torch.sparse.softmax(x, 1)",
)  # fmt: skip


@pytest.mark.parametrize("expression", SPARSE)
def test_sparse_operators_that_the_runtime_computes_with_dense_tensors(expression: str) -> None:
    source = f"import torch\ny = {expression}\n"
    for target in (TPU, "torchax", "torch_xla"):
        assert not reported(run(source, target))
