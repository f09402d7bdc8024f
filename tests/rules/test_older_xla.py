"""Programs for torch_xla: today's spellings on torch_xla, GPU code first elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import targets
from tests.helpers import TARGETS, constructs, migrated, reported, run

HEAD = """import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""
RANKS = f"""{HEAD}from torch.utils.data import DataLoader, DistributedSampler

def main(index, flags):
    sampler = DistributedSampler(data, xm.xrt_world_size(), xm.get_ordinal())
    loader = DataLoader(data, batch_size=flags.batch_size, sampler=sampler)
"""
START = '\nif __name__ == "__main__":\n    xmp.spawn(main, args=(flags,), nprocs=8)\n'


def last(source: str, target: str, head: str = HEAD, **options: bool) -> str:
    """What the last line of a program becomes."""
    return migrated(f"{head}{source}\n", target, **options).splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = xm.xla_device()", "d = torch_xla.device()"),
        ("d = xm.xla_device(1)", "d = torch_xla.device(1)"),
        ("d = xm.xla_device(n=1, devkind='TPU')", "d = torch_xla.device(index=1)"),
        ("xm.mark_step(wait=True)", "torch_xla.sync(wait=True)"),
        ("n = xm.xrt_world_size(defval=1)", "n = xr.world_size()"),
        ("n = xm.get_ordinal(0)", "n = xr.global_ordinal()"),
        ("n = xm.get_local_ordinal(0)", "n = xm.get_local_ordinal()"),
        ("d = xm.get_xla_supported_devices('TPU')", "d = xm.get_xla_supported_devices()"),
        ("d = xm.get_xla_supported_devices(4)", None),
        ("xmp.spawn(main, args=(f,), nprocs=8)", "torch_xla.launch(main, args=(f,))"),
        ("xmp.spawn(main, (f,), 8, True, False, 'fork')",
         "torch_xla.launch(main, (f,), start_method='fork')"),
        ("xmp.spawn(main, args=(f,), nprocs=f.cores)",
         "torch_xla.launch(main, args=(f,), debug_single_process=f.cores == 1)"),
        ("xmp.spawn(main, args=(f,), nprocs=None)", None),
        ("xmp.spawn(main, args=(f,), nprocs=1)", None),
        ("xm.optimizer_step(opt, barrier=True)", None),
        ("xm.save(net.state_dict(), path)", None),
        ("x = xm.mesh_reduce('x', x, sum)", None),
        ("loader = pl.ParallelLoader(loader, [d]).per_device_loader(d)", None),
        ("on = xr.using_pjrt()", "on = True"),
    ],
)  # fmt: skip
def test_older_spellings_become_those_of_today(before: str, after: str | None) -> None:
    assert last(before, "torch_xla") == (after or before)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from torch_xla.amp import GradScaler\ns = GradScaler()", "needs no scaling"),
        ("import torch_xla.distributed.data_parallel as dp\nm = dp.DataParallel(net)", "launch"),
        ("import torch_xla.utils.gcsfs as fs\nfs.open(p)", "google.cloud.storage"),
        ("xmp.spawn(main, nprocs=8, join=False)", "join and daemon"),
        ("import os\nos.environ['XLA_USE_BF16'] = '1'", "to(torch.bfloat16)"),
        ("import os\nif 'XRT_TPU_CONFIG' in os.environ: go()", "PJRT"),
    ],
)
def test_what_is_gone_is_named(source: str, reason: str) -> None:
    result = run(HEAD + source + "\n", "torch_xla")
    (message,) = [d.message for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert reason in message and not result.changed


MODERN = f"""{HEAD}import torch_xla.distributed.spmd as xs

def main(index):
    device = torch_xla.device()
    model = net.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        with torch_xla.step():
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
    if xr.global_ordinal() == 0:
        torch.save(model.state_dict(), path)

if __name__ == "__main__":
    torch_xla.launch(main)
"""


def test_code_of_today_stays_as_it_is() -> None:
    assert migrated(MODERN, "torch_xla", entry=True) == MODERN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f = partial(xm.get_ordinal, defval=0)", "f = partial(xr.global_ordinal)"),
        ("f = partial(xm.get_ordinal, 0)", "f = partial(xr.global_ordinal)"),
        ("f = partial(xm.xla_device, n=1)", "f = partial(torch_xla.device, index=1)"),
        ('f = partial(xm.xla_device, 1, "TPU")', "f = partial(torch_xla.device, 1)"),
        ("f = list(map(xm.xla_device, range(4)))", "f = list(map(torch_xla.device, range(4)))"),
        ("rank = xm.get_ordinal\nf = rank()", "rank = xr.global_ordinal\nf = rank()"),
    ],
)
def test_functions_that_are_passed_on_get_the_name_of_today(before: str, after: str) -> None:
    head = "from functools import partial\nimport torch_xla.core.xla_model as xm\n"
    text = migrated(f"{head}{before}\n", "torch_xla", entry=True)
    assert text.endswith(f"{after}\n") and "xm." not in text


@pytest.mark.parametrize(
    "statement",
    [
        "ranks = map(xm.get_ordinal, [0, 0])",
        'devices = map(xm.xla_device, [0, 1], ["TPU", "TPU"])',
        "rank = xm.get_ordinal\nr = rank(0)",
        "self.rank = xm.get_ordinal\nr = self.rank(defval=0)",
        "run = partial(xmp.spawn, nprocs=8)",
    ],
)
def test_what_is_given_to_them_elsewhere_is_reported(statement: str) -> None:
    head = (
        "from functools import partial\nimport torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\n"
    )
    (found,) = reported(run(f"{head}{statement}\n", "torch_xla", entry=True))
    assert found in statement


TRAINS = """import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.debug.metrics as met

device = xm.xla_device()
model = Net().to(  # of the program's own
    xm.xla_device(),
)
for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
    loss = model(x).sum()
    loss.backward()
    xm.optimizer_step(opt, barrier=True); xm.mark_step()
    if xm.is_master_ordinal():
        xm.master_print("step")
xm.rendezvous("end")
print(xm.xrt_world_size(), xm.get_memory_info(device), met.metrics_report())
xm.save(model.state_dict(), path, **options)
x = torch.load(path, map_location=xm.xla_device())
torch.cuda.Stream(xm.xla_device())
s = torch.cuda.Stream()
"""


@pytest.mark.parametrize("source", [TRAINS, MODERN])
@pytest.mark.parametrize("unsafe", [False, True])
def test_what_is_said_is_said_of_what_is_written(source: str, unsafe: bool) -> None:
    result = run(source, "torchax", entry=True, unsafe=unsafe)
    lines, places = source.splitlines(), set()
    for found in constructs(result):
        where = found.range
        if where.line == where.end_line:
            written = lines[where.line - 1][where.column - 1 : where.end_column - 1]
            assert written and written in found.construct
        assert found.construct.removesuffix("…") in " ".join(source.split())
        places.add((where, found.outcome))
    assert len({where for where, _ in places}) == len(places)  # no construct ends as two things
    assert result.changed or reported(result)


def test_an_import_below_a_try_stays_a_question() -> None:
    source = (
        "import torch\ntry:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n"
        "    xm = None\n\ndef choose(tpu):\n    if tpu:\n        return xm.xla_device()\n"
        "    return torch.device('cuda')\n"
    )
    assert migrated(source, "torchax") == source.replace("'cuda'", "'jax'")
    text = migrated(source, "torch_xla")
    assert "as xm\n    import torch_xla\nexcept" in text and "return torch_xla.device()\n" in text


def test_an_import_in_a_function_stays_a_question() -> None:
    source = (
        "import torch\n\ndef world():\n    import torch_xla.core.xla_model as xm\n"
        "    return xm.xrt_world_size()\n"
    )
    assert migrated(source, "torchax") == source
    assert migrated(source, "torch_xla") == (
        "import torch\nimport torch_xla.runtime as xr\n\ndef world():\n"
        "    import torch_xla.core.xla_model as xm\n    return xr.world_size()\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = xm.xla_device(1)", 'd = torch.device("jax")'),
        ("xm.optimizer_step(opt, barrier=True)", "opt.step()"),
        ("xm.optimizer_step(opt, optimizer_args={'closure': f})", "opt.step(**{'closure': f})"),
        ("xm.master_print('x', flush=True)", "print('x', flush=True)"),
        ("xm.save(state, path, master_only=True)", "torch.save(state, path)"),
        ("xm.mark_step(wait=True)", "tpu_runtime.synchronize()"),
        ("n = xm.xrt_world_size()", "n = 1"),
        ("n = xm.get_ordinal()", "n = 0"),
        ("x = xm.mesh_reduce('x', x, np.mean)", "x = np.mean([x])"),
        ("x = xm.all_reduce(xm.REDUCE_SUM, x)", "x = x"),
        ("x = xm.all_reduce('sum', x, scale=1.0 / xm.xrt_world_size())", "x = x"),
        ("xm.add_step_closure(say, args=(loss, step))", "say(loss, step)"),
        ("xm.set_rng_state(7, device=d)", "tpu_runtime.manual_seed(7)"),
        ("for x in pl.MpDeviceLoader(data, d): f(x)",
         "for x in tpu_runtime.DeviceLoader(data): f(x)"),
        ("net = xmp.MpModelWrapper(Net())", "net = Net()"),
        ("if xm.is_master_ordinal(): print(x)", "print(x)"),
        ("with torch_xla.amp.autocast(d): f()", "with tpu_runtime.autocast(): f()"),
    ],
)  # fmt: skip
def test_elsewhere_it_is_what_a_gpu_program_does(before: str, after: str) -> None:
    assert last(before, "torchax") == after
    assert "torch_xla" not in migrated(f"{HEAD}{before}\n", "torchax")


def test_what_only_lazy_tensors_need_goes() -> None:
    source = f"{HEAD}xm.mark_step()\nxm.rendezvous('x')\nxm.broadcast_master_param(net)\nf()\n"
    assert migrated(source, "torchax") == "import torch\nf()\n"


@pytest.mark.parametrize(
    "source",
    ["xm.get_memory_info(d)", "xm.all_gather(x)", "xm.optimizer_step(opt, groups=[[0]])",
     "x = xm.rendezvous('x')", "x = xm.all_reduce('sum', x, scale=0.5)", "f(xm)"],
)  # fmt: skip
def test_what_has_no_counterpart_is_reported(source: str) -> None:
    result = run(f"{HEAD}{source}\n", "torchax")
    assert reported(result) and source in result.source.decode()
    assert "import torch_xla.core.xla_model as xm" in result.source.decode()


def test_one_process_takes_the_place_of_the_ranks() -> None:
    text = migrated(RANKS + START, "torchax", unsafe=True)
    assert "tpu_runtime.DistributedSampler(data, tpu_runtime.device_count(), " in text
    assert '    torch.distributed.init_process_group("jax", init_method="jax://")\n' in text
    assert "    main(0, flags)\n" in text and "torch_xla" not in text


def test_a_program_with_ranks_stays_whole() -> None:
    """Not even its devices are renamed, and messages speak of the lines that are there."""
    source = RANKS + "    xm.mark_step()\n    x = xm.all_gather(x)\n" + START
    result = run(source, "torchax", unsafe=True)
    assert not result.changed and not result.companions
    assert {d.code for d in constructs(result)} == {"DST001"}
    line = source[: source.index("x = xm.all_gather")].count("\n") + 1
    assert {f"all_gather is not supported (line {line})"} == {
        d.message.rpartition(".")[2] for d in constructs(result)
    }
    assert not run(RANKS + START, "torchax").changed  # without --unsafe
    loads = "    loader = pl.MpDeviceLoader(loader, xm.xla_device())\n"  # what the runtime has
    assert not run(RANKS + loads + START, "torchax").changed


def test_files_of_one_program_agree(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "data.py").write_text(
        "import torch_xla.core.xla_model as xm\nfrom torch.utils.data import DistributedSampler\n"
        "\n\ndef sampler(data):\n"
        "    return DistributedSampler(data, xm.xrt_world_size(), xm.get_ordinal())\n"
    )
    (project / "main.py").write_text(
        "import torch\nimport torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\nfrom data import sampler\n\n\n"
        "def main(index):\n    device = xm.xla_device()\n    run(sampler(files), device)\n\n\n"
        'if __name__ == "__main__":\n    xmp.spawn(main)\n'
    )
    out = tmp_path / "out"
    report = migrate_paths([project], target="torchax", config=Config(unsafe=True), output=out)
    assert not report.diagnostics(Outcome.REPORTED)
    assert (
        "tpu_runtime.DistributedSampler(data, tpu_runtime.device_count(), "
        in (out / "data.py").read_text()
    )
    text = (out / "main.py").read_text()
    assert "    main(0)\n" in text and 'device = torch.device("jax")' in text


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_commands_of_older_guides(target: str) -> None:
    source = (
        b"pip install cloud-tpu-client==0.10 torch==1.13.0 "
        b"https://storage.googleapis.com/tpu-pytorch/wheels/colab/torch_xla-1.13-cp38-linux.whl\n"
        b'export XRT_TPU_CONFIG="localservice;0;localhost:51011"\n'
        b"curl https://raw.githubusercontent.com/pytorch/xla/master/contrib/scripts/"
        b"env-setup.py -o pytorch-xla-env-setup.py\n"
    )
    result = migrate_file(Path("setup.sh"), source, targets()[target], Options())
    pip, export, setup = result.source.decode().splitlines()
    assert "cloud-tpu-client" not in pip and "googleapis" not in pip and "torch==2.9.0" in pip
    assert ("'torch_xla[tpu]==2.9.0'" in pip) is (target == "torch_xla")
    assert export == ("export PJRT_DEVICE=TPU" if target == "torch_xla" else export)
    assert setup in source.decode() and any("curl" in text for text in reported(result))


def test_a_gpu_program_with_a_branch_for_torch_xla_keeps_its_ranks() -> None:
    """The branch stays a question; all else is a GPU program with ranks, as without it."""
    source = (
        "import torch\nimport torch.distributed as dist\n"
        "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None\n\n\n"
        "def start(args):\n    if xm is not None:\n        return xm.get_ordinal()\n"
        '    dist.init_process_group("nccl", rank=args.rank)\n'
        "    ready = all(key in os.environ for key in ['RANK'])\n"
        "    return torch.zeros(1).cuda()\n"
    )
    text = migrated(source, "torchax")
    assert 'dist.init_process_group("jax", rank=args.rank)' in text
    assert "        return xm.get_ordinal()\n" in text and 'torch.zeros(1).to("jax")' in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("fd=log()", "the rewrite of torch_xla.core.xla_model.master_print would drop log()"),
        ("local=is_local()", "xla_model.master_print would drop is_local()"),
    ],
)
def test_ranks_that_stay_say_what_a_print_would_lose(given: str, reason: str) -> None:
    source = (
        "import torch\nimport torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\n\n\n"
        f"def run(index):\n    xm.master_print('x', {given})\n\n\n"
        "if __name__ == '__main__':\n    xmp.spawn(run)\n"
    )
    assert any(reason in d.message for d in run(source, "torchax", entry=True).diagnostics)
