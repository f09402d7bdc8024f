"""Ranks stay ranks: how they start and meet on each target, and what keeps them whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from tests.helpers import DEVICE, TARGETS, constructs, migrated, run
from tests.rules.ranks import HEAD, write


@pytest.mark.parametrize("target", TARGETS)
def test_a_portable_program_with_ranks_stays_whole(target: str) -> None:
    result = run(HEAD, target, portable=True)
    assert not result.changed and not result.companions
    assert {d.code for d in constructs(result)} == {"DST001"}
    assert "which is not rewritten yet" in constructs(result)[0].message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        # a rank is what it is on GPUs
        ("loss = loss / world_size", None),
        ("mine = data[rank::world_size]", None),
        ("rank = int(os.environ['RANK'])", None),
        ("parser.add_argument('--local_rank', default=-1, type=int)", None),
        ("(d.sum() / n).backward()", None),
        ("dist.all_gather_object([None] * world_size, x)", None),
        ("net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)", None),
        ("dist.reduce_scatter_tensor(out, x)", None),
        ("dist.checkpoint.save(x, storage_writer=dist.checkpoint.FileSystemWriter('x'))", None),
        ("dist.checkpoint.load_state_dict(x, dist.checkpoint.FileSystemReader('x'))", None),
        ("print(f'rank {rank} of {world_size}')", None),
        ("dist.distributed_c10d.logger.setLevel('ERROR')", None),
        # its device is the one that it has
        ("n = torch.cuda.device_count()", "n = tpu_runtime.device_count()"),
        ("torch.cuda.manual_seed(rank)", "tpu_runtime.manual_seed(rank)"),
        ("x = x.to(rank)", 'x = x.to("DEVICE")'),
        ("device = torch.device(f'cuda:{rank}')", 'device = torch.device("DEVICE")'),
        ("torch.cuda.synchronize()", "tpu_runtime.synchronize()"),
        ("assert dist.is_nccl_available()", "assert dist.is_available()"),
        ("model = DDP(net, [rank], rank, find_unused_parameters=True)",
         "model = tpu_runtime.DistributedDataParallel(net, find_unused_parameters=True)"),
        ("plain = model.module if isinstance(model, DDP) else model",
         "plain = model.module if isinstance(model, tpu_runtime.DistributedDataParallel) "
         "else model"),
    ],
)  # fmt: skip
def test_ranks_stay_ranks(before: str, after: str | None, target: str) -> None:
    text = migrated(f"{HEAD}    {before}\n", target)
    device = DEVICE[target]
    assert text.splitlines()[-1].strip() == (after or before).replace("DEVICE", device)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.save(x, f'part_{rank}.pt')", "tpu_runtime.save(x, f'part_{rank}.pt')"),
        ("with torch.cuda.amp.autocast(): net(x)",
         'with torch.autocast("xla", dtype=torch.bfloat16): net(x)'),
        ("mp.spawn(main, args=(n, args), nprocs=n, join=True)",
         "torch_xla.launch(main, args=(n, args))"),
        ("mp.spawn(main, (n, args), n)", "torch_xla.launch(main, (n, args))"),
        ("mp.spawn(fn=main, nprocs=n, daemon=True)", "torch_xla.launch(fn=main)"),
        ("mp.start_processes(main, nprocs=n, args=(n,), daemon=False, start_method='fork')",
         "torch_xla.launch(main, args=(n,), start_method='fork')"),
        ("dist.send(x, 1); work = dist.irecv(x, 0)", "dist.send(x, 1); work = dist.irecv(x, 0)"),
        ("y = dist._functional_collectives.all_gather_tensor_autograd(x, 0, group)",
         "y = dist._functional_collectives.all_gather_tensor_autograd(x, 0, group)"),
        ("dist.init_process_group('gloo', 'env://', timeout, n, rank)",
         "dist.init_process_group('xla', init_method='xla://', timeout=timeout, world_size=n, "
         "rank=rank)"),
        ("dist.init_process_group(init_method='env://', backend=args.backend)",
         "dist.init_process_group('xla', init_method='xla://')"),
        ("pair = dist.new_group([0, 1]); dist.barrier(group=pair)",
         "pair = dist.new_group([0, 1]); dist.barrier(group=pair)"),
    ],
)  # fmt: skip
def test_torch_xla_starts_them_in_its_own_way(before: str, after: str) -> None:
    text = migrated(f"{HEAD}    {before}\n", "torch_xla")
    assert text.splitlines()[-1].strip() == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("mp.spawn(main, args=(n, args), nprocs=n, join=False)", None),
        ("mp.spawn(main, nprocs=count_the_gpus())", None),
        ("mp.start_processes(main, args=(n, args), nprocs=n, daemon=False)", None),
        ("pair = dist.new_group([0, 1]); dist.send(x, 1, group=pair)", None),
        ("work = dist.isend(x, 1); dist.recv(x, 0)", None),
        ("dist.init_process_group('gloo', 'env://', timeout, n, rank)",
         "dist.init_process_group('jax', 'env://', timeout, n, rank)"),
        ("dist.init_process_group(init_method=args.url, backend=args.backend, world_size=n)",
         "dist.init_process_group(init_method=args.url, backend='jax', world_size=n)"),
        ("dist.init_process_group('nccl', device_id=torch.device('cuda', rank))",
         "dist.init_process_group('jax')"),
        ("dist.init_process_group()", "dist.init_process_group('jax')"),
        ("dist.init_process_group('jax', rank=rank)", None),
    ],
)  # fmt: skip
def test_on_torchax_they_are_started_and_meet_as_before(before: str, after: str | None) -> None:
    text = migrated(f"{HEAD}    {before}\n")
    assert text.splitlines()[-1].strip().replace('"', "'") == (after or before)


def test_only_a_program_that_starts_its_ranks_tells_setup_so(tmp_path: Path) -> None:
    launched = "if __name__ == '__main__':\n    mp.spawn(main, args=(2, 3), nprocs=2)\n"
    guard = "if __name__ == '__main__':\n    main(0, 1, 2)\n"
    for last, setup in ((launched, "setup(ranks=True)"), (guard, "setup()")):
        write(tmp_path, train=HEAD + last)
        migrate_paths([tmp_path], target="torch_xla", write=True, allow_dirty=True)
        assert f"tpu_runtime.{setup}" in (tmp_path / "train.py").read_text()


def test_what_a_program_with_ranks_imports_leaves_the_device_alone(tmp_path: Path) -> None:
    """A helper knows nothing of ranks, and runs in the process that starts them, too."""
    helper = (
        "import torch\n\nDEVICE = torch.device('cuda')\n\n\ndef seed(n):\n"
        "    torch.cuda.manual_seed_all(n)\n\n\ndef save(x, path):\n    torch.save(x, path)\n"
    )
    for name, other, words in (
        ("alone", "", ("torch_xla.device()", "torch_xla.manual_seed(n)", "xm.save")),
        ("ranks", HEAD, ('torch.device("xla")', "tpu_runtime.manual_seed_all", "tpu_runtime.save")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, train=f"from helper import seed\n{other}", helper=helper)
        migrate_paths([folder], target="torch_xla", write=True, allow_dirty=True)
        text = (folder / "helper.py").read_text().replace("'", '"')
        assert all(word in text for word in words), text


@pytest.mark.parametrize("target", TARGETS)
def test_devices_that_are_counted_to_choose_one_are_not_counted(target: str) -> None:
    source = (
        "import os\nimport torch\nimport torch.distributed as dist\n\n\ndef init(backend):\n"
        "    rank = int(os.environ['RANK'])\n    count = torch.cuda.device_count()\n"
        "    torch.cuda.set_device(rank % count)\n    dist.init_process_group(backend=backend)\n"
    )
    after = migrated(source, target)
    assert "count" not in after and "tpu_runtime" not in after
    shown = source.replace("backend=", "world_size=count, backend=")
    assert "count = tpu_runtime.device_count()" in migrated(shown, target)


def test_torchrun_and_copies_in_one_program() -> None:
    source = (
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "kinds = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)\n"
        "x = torch.ones(2).cuda()\n"
    )
    assert "tpu_runtime.setup()" in migrated(source, "torch_xla", entry=True)


def test_copies_of_another_file_are_told_to_setup(tmp_path: Path) -> None:
    model = "import torch\n\n\ndef wrap(net):\n    return torch.nn.DataParallel(net.cuda())\n"
    train = "from model import wrap\n\nif __name__ == '__main__':\n    wrap(net)\n"
    for target, setup in (("torch_xla", "setup(spmd=True)"), ("torchax", "setup()")):
        folder = tmp_path / target
        folder.mkdir()
        write(folder, model=model, train=train)
        migrate_paths([folder], target=target, write=True, allow_dirty=True)
        assert f"tpu_runtime.{setup}" in (folder / "train.py").read_text()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dist.all_reduce_coalesced([x])", "all_reduce_coalesced is not supported"),
        ("y = dist._functional_collectives.permute_tensor(x, [1, 0], group)",
         "_functional_collectives.permute_tensor is not supported"),
        ("dist.fsdp.fully_shard(net, mesh=mesh)", "mesh of fully_shard is not supported"),
        ("ctx = mp.start_processes(main, nprocs=2, join=False)", "continues while its processes"),
        ("model.register_comm_hook(None, hook)", "register_comm_hook changes"),
        ("p = mp.Process(target=main)", "starts processes that do other work"),
        ("ctx = mp.spawn(main, nprocs=2, join=False)", "continues while its processes"),
        ("mp.spawn(main, args=(3,), nprocs=prepare())", "prepare() may do more than count"),
        ("net = DDP(net, [0], 0, 0, False)", "more than three positional arguments"),
    ],
)  # fmt: skip
def test_what_torch_xla_can_not_start_or_exchange_stays(line: str, reason: str) -> None:
    result = run(f"{HEAD}    {line}\n", "torch_xla")
    assert not result.changed
    assert reason in constructs(result)[0].message


@pytest.mark.parametrize("target", TARGETS)
def test_a_group_of_one_keeps_its_store(target: str) -> None:
    """k-diffusion: whatever a launcher does, each process is alone."""
    told = "world_size=1, rank=0, store=dist.HashStore()"
    text = f"""import torch
import torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group({told})
dist.all_reduce(torch.ones(3).cuda())
"""
    changed = migrated(text, target)
    assert f'dist.init_process_group("{DEVICE[target]}", {told})' in changed
    named = migrated(text.replace("group(", "group('nccl', "), target)
    assert f"dist.init_process_group('{DEVICE[target]}', {told})" in named


@pytest.mark.parametrize("target", TARGETS)
def test_stores_are_on_the_host(target: str) -> None:
    line = "store = dist.PrefixStore('x', dist.TCPStore('localhost', 0, is_master=True))"
    assert migrated(f"{HEAD}    {line}\n", target).splitlines()[-1].strip() == line


# A worker that joins nothing, and one that is a rank, by a function that it calls.
WORKERS = """import multiprocessing

class Tool:
    def run(self, path):
        return torch.zeros(len(path))

def convert(path, tool=Tool()):
    return tool.run(path)

def meet():
    dist.init_process_group("nccl")

class Rank:
    def join(self):
        meet()

def joins(path):
    Rank().join()

"""


@pytest.mark.parametrize(
    "line",
    [
        "with multiprocessing.get_context('spawn').Pool(2) as p: p.map(WORK, paths)",
        "c = mp.get_context('spawn'); q = c.Queue(); c.Process(target=WORK, args=(q,)).start()",
        "mp.Process(target=WORK, args=('a',)).start()",
        "c = mp.get_context('fork'); pool = c.Pool(2, initializer=WORK); pool.imap(print, x)",
    ],
)
def test_processes_that_join_no_ranks_keep_no_program(line: str) -> None:
    text = f"{HEAD}    {line.replace('WORK', 'convert')}\n".replace("import os\n", WORKERS, 1)
    assert "'xla://'" in migrated(text, "torch_xla").replace('"', "'")
    assert not run(
        text.replace("convert,", "joins,").replace("=convert", "=joins"), "torch_xla"
    ).changed


def test_what_processes_run_is_followed_into_other_files(tmp_path: Path) -> None:
    """nnUNet: workers that prepare samples, by a class of another file."""
    lib = f"import torch\nimport torch.distributed as dist\n{WORKERS}"
    line = "    multiprocessing.get_context('spawn').Pool(2).map(WORK, paths)\n"
    for name, expected in (("convert", True), ("joins", False)):
        folder = tmp_path / name
        folder.mkdir()
        program = f"import multiprocessing\nfrom lib import {name}\n{HEAD}{line}"
        program = program.replace("WORK", name)
        write(folder, lib=lib, train=f"{program}\nmain(0, 1, 2)\n")
        files = {f.path.name: f.result for f in migrate_paths([folder], "torch_xla").files}
        assert files["train.py"].changed is expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "group: dist.Store | None = None",
        "def f(group: Optional[dist.Store], other: 'int' = 1) -> Union[dist.Store, None]: pass",
        "assert isinstance(group, (dist.Store, list))",
        "assert type(group) in (dist.ProcessGroup, list)",
        "assert type(group) not in [dist.ProcessGroup, list]",
    ],
)
def test_a_type_that_is_only_named_keeps_nothing(line: str, target: str) -> None:
    text = migrated(f"{HEAD}    {line}\n", target)
    assert text.splitlines()[-1].strip() == line


@pytest.mark.parametrize("target", TARGETS)
def test_the_type_of_a_parameter_keeps_nothing(target: str) -> None:
    """Also where the function is called, and whatever stands beside the parameter."""
    function = "def take(*, group: Optional[dist.ProcessGroup] = None, **rest: dist.Store): pass\n"
    text = migrated(f"{function}{HEAD}    take(group=dist.group.WORLD)\n", target)
    assert text.startswith(function) and "tpu_runtime.DistributedDataParallel" in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "rank = int(os.environ['SLURM_PROCID'])",
        "n = os.getenv('OMPI_COMM_WORLD_SIZE')",
        "if 'PMI_RANK' in os.environ: pass",
        "from mpi4py import MPI; rank = MPI.COMM_WORLD.Get_rank()",
    ],
)
def test_what_another_launcher_says_is_reported_by_itself(line: str, target: str) -> None:
    result = run(f"{HEAD}    {line}\n", target)
    (found,) = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert "is set by another launcher" in found.message
    assert "tpu_runtime.DistributedDataParallel" in result.source.decode()


def test_jobs_of_slurm_that_a_script_starts_are_reported(tmp_path: Path) -> None:
    jobs = "import submitit\nimport train\n\nexecutor = submitit.AutoExecutor('jobs')\n"
    jobs += "executor.update_parameters(gpus_per_node=8)\nexecutor.submit(train.main)\n"
    write(tmp_path, jobs=jobs, train=HEAD)
    files = {f.path.name: f.result for f in migrate_paths([tmp_path], "torchax").files}
    (found,) = [d for d in constructs(files["jobs.py"]) if d.outcome is Outcome.REPORTED]
    assert "start the program by torchrun" in found.message


@pytest.mark.parametrize("package", [".", "package"])
def test_a_file_that_asks_mpi_alone_is_a_part_of_the_program(package: str, tmp_path: Path) -> None:
    """Beside the program, or in a package that scripts in another folder import."""
    data = "from mpi4py import MPI\nfrom torch.utils.data import Dataset\n\n"
    data += "def shard():\n    return Dataset(MPI.COMM_WORLD.Get_rank())\n"
    program = f"from {package if package != '.' else 'data'} import *\n{HEAD}    shard()\n"
    for folder in (package, "scripts"):
        (tmp_path / folder).mkdir(exist_ok=True)
    write(tmp_path / package, data=data, __init__="from .data import shard\n")
    write(tmp_path / "scripts" if package != "." else tmp_path, train=program)
    files = {f.path.name: f.result for f in migrate_paths([tmp_path], "torchax").files}
    (found,) = constructs(files["data.py"])
    assert found.outcome is Outcome.REPORTED and "set by another launcher" in found.message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"])
def test_hooks_that_the_runtimes_know_keep_no_program(name: str, target: str) -> None:
    hooks = "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    line = f"model.register_comm_hook(None, default_hooks.{name})"
    text = migrated(f"{hooks}{HEAD}    {line}\n", target)
    assert "tpu_runtime.DistributedDataParallel" in text and text.splitlines()[-1].strip() == line


@pytest.mark.parametrize("target", TARGETS)
def test_a_library_names_the_norm_that_asks_other_ranks(target: str) -> None:
    source = "from torch import nn\n\n\ndef norm(n):\n    return nn.SyncBatchNorm(n)\n"
    assert migrated(source, target) == source
    assert [d.outcome for d in constructs(run(source, target))] == [Outcome.KEPT]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("chain", "kept"),
    [
        ("if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n    rank = int(RANK)\n"
         "elif 'SLURM_PROCID' in os.environ:\n    rank = int(SLURM)\n", True),
        ("if 'RANK' in os.environ:\n    rank = int(RANK)\n"
         "elif 'SLURM_PROCID' in os.environ and x:\n    if y:\n        rank = int(SLURM)\n", True),
        ("if 'SLURM_PROCID' in os.environ:\n    rank = int(SLURM)\n"
         "elif 'RANK' in os.environ:\n    rank = int(RANK)\n", False),
        ("if 'RANK' in os.environ:\n    rank = int(RANK)\nelse:\n    rank = int(SLURM)\n", False),
        ("if 'RANK' in os.environ:\n    rank = int(RANK)\n"
         "elif launcher == 'slurm':\n    rank = int(SLURM)\n", False),
    ],
)  # fmt: skip
def test_another_launcher_after_torchrun(chain: str, kept: bool, target: str) -> None:
    """Started by torchrun, the program never asks Slurm."""
    ranks = {"RANK)": "os.environ['RANK'])", "SLURM)": "os.environ['SLURM_PROCID'])"}
    for short, read in ranks.items():
        chain = chain.replace(f"int({short}", f"int({read}")
    source = f"import os\nimport torch\nimport torch.distributed as dist\n{chain}"
    source += "dist.init_process_group('nccl')\nx = torch.ones(2).cuda()\ndist.all_reduce(x)\n"
    found = [d for d in constructs(run(source, target)) if "SLURM_PROCID" in d.construct]
    assert found and {str(d.outcome) for d in found} == {"kept" if kept else "reported"}
