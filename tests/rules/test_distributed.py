"""Programs for several devices: ranks stay ranks, one process takes their place, or all stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.errors import UsageError
from tests.helpers import TARGETS, assert_sound, constructs, migrated, reported, run

UNSAFE = Config(unsafe=True, shard="fsdp")
TOGETHER = Config(shard="tp")
HEAD = """import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(rank, world_size, args):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    sampler = DistributedSampler(data)
    model = DDP(net.cuda(rank), device_ids=[rank])
"""


def line(source: str, target: str = "torchax") -> str:
    """What the last line of a program becomes, below HEAD and inside of its function."""
    text = migrated(f"{HEAD}    {source}\n", target, unsafe=True, shard="fsdp")
    return text.splitlines()[-1].strip()


def obstacle(source: str) -> str:
    """Why a program stays whole."""
    result = run(HEAD + source, unsafe=True, shard="fsdp")
    assert not result.changed and not result.companions
    assert {d.code for d in constructs(result)} == {"DST001"}
    (message,) = {d.message for d in constructs(result)}
    return message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # configuration: the number of devices
        ("batch_size = args.batch_size // dist.get_world_size()",
         "batch_size = args.batch_size // tpu_runtime.device_count()"),
        ("lr = args.lr * dist.get_world_size()", "lr = args.lr * tpu_runtime.device_count()"),
        ("steps = len(data) // (args.batch_size * world_size)", None),
        ("workers = int((args.workers + world_size - 1) / world_size)", None),
        ("n = torch.cuda.device_count()", "n = tpu_runtime.device_count()"),
        # what was summed over the ranks: one
        ("dist.all_reduce(loss); loss /= world_size",
         "dist.all_reduce(loss); loss /= dist.get_world_size()"),
        ("dist.reduce(loss, 0); print(loss.item() / dist.get_world_size())", None),
        ("dist.all_reduce(p.grad.data); p.grad.data.div_(float(args.world_size))",
         "dist.all_reduce(p.grad.data); p.grad.data.div_(float(dist.get_world_size()))"),
        ("parts = [torch.empty(2) for _ in range(world_size)]; dist.all_gather(parts, x)",
         "parts = [torch.empty(2) for _ in range(dist.get_world_size())]; "
         "dist.all_gather(parts, x)"),
        ("names = [None] * world_size; dist.all_gather_object(names, x)",
         "names = [None] * dist.get_world_size(); dist.all_gather_object(names, x)"),
        ("seen = len(loader.sampler) * world_size",
         "seen = len(loader.sampler) * dist.get_world_size()"),
        # rank 0
        ("rank = int(os.environ['RANK'])", "rank = 0"),
        ("world = int(os.environ['WORLD_SIZE'])", "world = tpu_runtime.device_count()"),
        ("rank = os.getenv('LOCAL_RANK', '0')", "rank = '0'"),
        ("started = 'RANK' in os.environ", "started = True"),
        ("torch.manual_seed(args.seed + rank)", None),
        ("dist.get_rank() == 0 and print('done')", None),
        ("dist.barrier()", None),
        ("args.rank = args.node_rank * world_size + rank", None),
        ("rank = args.nr * args.gpus + gpu", None),
        ("model = DDP(net, device_ids=[rank] if on_gpu else None)",
         "model = tpu_runtime.FullyShardedDataParallel(net)"),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = str(args.gpu)", None),
        ("seed = args.workers * rank + worker + args.seed", None),
        ("name = prefix + '-rank%03i' % rank + suffix", None),
        ("parser.add_argument('--local_rank', default=-1, type=int)",
         "parser.add_argument('--local_rank', default=0, type=int)"),
        ("parser.add_argument('--local-rank', type=int, required=True)",
         "parser.add_argument('--local-rank', type=int, default=0)"),
        # the launcher
        ("mp.spawn(main, args=(n, args), nprocs=n, join=True)", "main(0, n, args)"),
        ("mp.spawn(main, nprocs=n, args=rest)", "main(0, *rest)"),
        ("mp.spawn(main, nprocs=n)", "main(0)"),
        ("mp.start_processes(main, args=(n, args), nprocs=n, daemon=False)", "main(0, n, args)"),
        # the wrappers
        ("sampler = DistributedSampler(data, world_size, rank, shuffle=False, seed=3)",
         "sampler = tpu_runtime.DistributedSampler(data, world_size, rank, shuffle=False, seed=3)"),
        ("plain = model.module if isinstance(model, DDP) else model",
         "plain = model.module if isinstance(model, tpu_runtime.FullyShardedDataParallel) "
         "else model"),
        ("model = DDP(module=net, find_unused_parameters=True, process_group=None)",
         "model = tpu_runtime.FullyShardedDataParallel(module=net)"),
        ("other = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)", "other = net"),
        ("dist.init_process_group(init_method='env://', backend=args.backend)",
         "dist.init_process_group('jax', init_method='jax://')"),
    ],
)  # fmt: skip
def test_one_process_takes_the_place_of_the_ranks(before: str, after: str | None) -> None:
    assert line(before) == (after or before)


OBSTACLES = {
    # a part of the data by a number
    "mine = data[rank::world_size]": "rank is used in a way",
    "me = dist.get_rank(); mine = files[me::4]": "me is used in a way",
    "mine = files[int(os.environ['RANK'])::4]": "is used in a way",
    "for i in range(rank, n, world_size): f(i)": "rank goes to range()",
    "mine = np.arange(rank, n, world_size)": "rank goes to np.arange()",
    "start = rank * len(data)": "start is computed from the rank",
    "if i % world_size != rank: skip()": "compares with the rank",
    "part = data.shard(4, index=rank)": "rank goes to data.shard()",
    "part = np.load(f'shard_{rank}.npy')": "a part of a text that is used",
    "grads = [x.grad for x in shards[rank].parameters()]": "rank is used in a way",
    "self.r = dist.get_rank()": "r is the rank",
    "seeds = data[rank * 10:]": "is used in a way",
    # a number of ranks in what is computed
    "loss = loss / world_size": "computes with the number of ranks",
    "loss *= dist.get_world_size()": "loss is computed from the number of ranks",
    "p.grad.mul_(1.0 / world_size)": "goes to p.grad.mul_()",
    "x.mul_(dist.get_world_size() ** -1)": "goes to x.mul_()",
    "scale = 1 / world_size": "scale is computed from the number of ranks",
    "dist.all_reduce(x); x = x / (len(y) * world_size)": "whether len(y) * world_size",
    "dist.all_reduce(x); x = x / max(1, world_size)": "whether max(1, world_size)",
    "dist.all_reduce(x); x /= n": "whether n is a number of ranks",
    "num = t.item(); num = num / world_size": "num / world_size computes",
    "c = right / (len(dataset) / world_size)": "computes with the number of ranks",
    "seen = x.size(0) * world_size": "computes with the number of ranks",
    "all_there = done.item() == world_size": "compares with the number of ranks",
    "hook = partial(scale, dist.get_world_size())": "goes to partial()",
    "how_many = dist.get_world_size": "get_world_size is passed on",
    "cfg['world'] = dist.get_world_size()": "is put into cfg['world']",
    "x = torch.zeros(world_size, 3)": "world_size goes to torch.zeros()",
    # under another name, or behind something
    "n = max(dist.get_world_size(), 1); loss = loss / n": "loss / n computes",
    "n = args.n or dist.get_world_size(); w = n; loss = loss / w": "loss / w computes",
    "n = 1 if alone else dist.get_world_size(); loss = loss / n": "loss / n computes",
    "loss = loss / cfg['world_size']": "computes with the number of ranks",
    "part = x[:cfg.get('batch_size')]": "is used in a way",
    "x = torch.zeros(BATCH_SIZE)": "BATCH_SIZE goes to torch.zeros()",
    "noise = torch.randn(imgs_per_gpu, 8)": "imgs_per_gpu goes to torch.randn()",
    "batch_loss /= world_size": "batch_loss is computed from the number of ranks",
    # what is computed from configuration, under a name that nobody follows
    "n_samples = len(loader) * batch_size": "n_samples is computed from the batch size",
    "micro_batch = batch_size // 4": "micro_batch is computed from the batch size",
    "node = rank // 8": "node is computed from the rank",
    # gathering into what the analysis has not seen made
    "out = list(buffer.unbind(0)); dist.all_gather(out, x)": "as long as there are ranks",
    # a batch size that is more than one of a loader
    "part = args.batch_size / 4": "part is computed from the batch size",
    "x = images[:args.batch_size]": "is used in a way",
    "noise = torch.randn(args.batch_size, 8)": "args.batch_size goes to torch.randn()",
    "x = x.view(args.batch_size, -1)": "args.batch_size goes to x.view()",
    "seen += args.batch_size": "seen is computed from the batch size",
    "acc = right / args.batch_size": "computes with the batch size",
    "steps = len(sampler) // args.batch_size": "computes with the batch size",
    # losses and samplers
    "loss = F.mse_loss(x, y, reduction='sum')": "a loss is a sum",
    "loss.sum().backward()": "a loss is a sum",
    "scaler.scale(d.sum()).backward()": "a loss is a sum",
    "total = bce + 0.5 * kld.sum(); loss = total; loss.backward()": "a loss is a sum",
    "loss = criterion(x); dist.all_reduce(loss); loss.backward()": "goes on with gradients",
    "loader = DataLoader(data, 4, shuffle=True)": "a loader without a sampler",
    "loader = DataLoader(data, batch_sampler=mine)": "a sampler of batches",
    "loader = DataLoader(data, sampler=Twice(DistributedSampler(data)))": "than a loader",
    "order = list(sampler)": "than a loader",
    # other ways to start and to exchange
    "dist.send(x, 1)": "torch.distributed.send is not understood",
    "part = dist.new_group([0])": "torch.distributed.new_group is not understood",
    "model.register_comm_hook(None, hook)": "register_comm_hook changes",
    "mp.Process(target=other.main)": "starts processes with work of their own",
    "p = mp.Process(target=main)": "starts processes with work of their own",
    "ctx = mp.spawn(main, nprocs=2, join=False)": "goes on beside its processes",
    "found = {k: os.environ[k] for k in ('RANK', 'WORLD_SIZE')}": "RANK is asked for",
    "rank = int(os.environ['SLURM_PROCID'])": "SLURM_PROCID is what another launcher sets",
}


@pytest.mark.parametrize(("source", "reason"), OBSTACLES.items())
def test_what_can_not_be_followed_keeps_the_program_whole(source: str, reason: str) -> None:
    message = obstacle(f"    {source}\n")
    assert reason in message and "(line 13)" in message


def test_a_sampler_or_a_model_of_its_own() -> None:
    assert "Mine divides the samples" in obstacle("class Mine(DistributedSampler):\n    pass\n")
    model = (
        "class Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        dist.all_reduce(x)\n        return x\n"
    )
    assert "what a model computes is reduced" in obstacle(model)


@pytest.mark.parametrize(
    "start",
    [
        "model = torch.nn.parallel.DistributedDataParallel(model.cuda())",
        "torch.distributed.init_process_group('nccl')",
        "torch.multiprocessing.spawn(main, nprocs=2)",
    ],
)
def test_without_a_sampler_nobody_knows_the_data_of_a_rank(start: str) -> None:
    source = f"import torch\n{start}\n"
    result = run(source, unsafe=True, shard="fsdp")
    assert not result.changed
    assert "without a DistributedSampler" in constructs(result)[0].message


def test_a_program_is_one_process_only_if_told_so_twice() -> None:
    assert "tpu_runtime.DistributedDataParallel(net" in migrated(HEAD)
    result = run(HEAD, shard="fsdp")
    assert not result.changed and not result.companions
    assert {d.code for d in constructs(result)} == {"DST001"}
    assert "--unsafe makes one process of it" in constructs(result)[0].message


@pytest.mark.parametrize(
    "line", ["loss = loss.sum() / torch.cuda.device_count()", "model(x).sum().backward()"]
)
def test_what_copies_give_is_not_added_up(line: str) -> None:
    source = f"import torch\nmodel = torch.nn.DataParallel(model)\n{line}\n"
    result = run(source)
    assert b"torch.nn.DataParallel(model)" in result.source
    assert "line 3 computes with the number" in result.diagnostics[0].message


def test_a_number_of_gpus_that_is_printed_is_no_computation() -> None:
    source = (
        "import torch\nprint('%d GPUs' % torch.cuda.device_count())\n"
        "model = torch.nn.DataParallel(model)\n"
    )
    assert "model = tpu_runtime.DataParallel(model)" in migrated(source)


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
        ("print(f'rank {rank} of {world_size}')", None),
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
    device = {"torchax": "jax", "torch_xla": "xla"}[target]
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
        ("dist.all_reduce_coalesced([x])", "all_reduce_coalesced is not understood"),
        ("y = dist._functional_collectives.permute_tensor(x, [1, 0], group)",
         "_functional_collectives.permute_tensor is not understood"),
        ("ctx = mp.start_processes(main, nprocs=2, join=False)", "goes on beside its processes"),
        ("model.register_comm_hook(None, hook)", "register_comm_hook changes"),
        ("p = mp.Process(target=main)", "starts processes with work of their own"),
        ("ctx = mp.spawn(main, nprocs=2, join=False)", "goes on beside its processes"),
        ("mp.spawn(main, args=(3,), nprocs=prepare())", "prepare() may do more than count"),
        ("net = DDP(net, [0], 0, 0, False)", "unnamed arguments behind the third"),
    ],
)  # fmt: skip
def test_what_torch_xla_can_not_start_or_exchange_stays(line: str, reason: str) -> None:
    result = run(f"{HEAD}    {line}\n", "torch_xla")
    assert not result.changed
    assert reason in constructs(result)[0].message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "group: dist.Store | None = None",
        "def f(group: Optional[dist.Store], other: 'int' = 1) -> Union[dist.Store, None]: pass",
        "assert isinstance(group, (dist.Store, list))",
    ],
)
def test_a_type_that_is_only_named_keeps_nothing(line: str, target: str) -> None:
    text = migrated(f"{HEAD}    {line}\n", target)
    assert text.splitlines()[-1].strip() == line


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "rank = int(os.environ['SLURM_PROCID'])",
        "n = os.getenv('OMPI_COMM_WORLD_SIZE')",
        "if 'PMI_RANK' in os.environ: pass",
    ],
)
def test_what_another_launcher_says_is_reported_by_itself(line: str, target: str) -> None:
    result = run(f"{HEAD}    {line}\n", target)
    (found,) = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert "is what another launcher sets" in found.message
    assert "tpu_runtime.DistributedDataParallel" in result.source.decode()


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
def test_a_number_of_ranks_without_ranks_stays(target: str) -> None:
    """A helper that asks torch.distributed, in a program that starts no processes."""
    source = (
        "import torch\nimport torch.distributed as dist\n\n\ndef mean(x):\n"
        "    if not dist.is_initialized():\n        return x\n"
        "    dist.all_reduce(x)\n    return x / dist.get_world_size()\n"
    )
    assert migrated(source, target) == source


def test_parameters_are_sharded_on_request() -> None:
    text = migrated(HEAD, shard="fsdp", unsafe=True)
    assert 'model = tpu_runtime.FullyShardedDataParallel(net.to("jax"))' in text
    text = migrated("import torch\nmodel = torch.nn.DataParallel(model.cuda())\n", shard="fsdp")
    assert 'model = tpu_runtime.FullyShardedDataParallel(model.to("jax"))' in text


def test_shards_need_a_target_that_has_them(tmp_path: Path) -> None:
    write(tmp_path, train=HEAD)
    with pytest.raises(UsageError, match="--shard fsdp: torch_xla has no such models"):
        migrate_paths([tmp_path], target="torch_xla", config=Config(shard="fsdp"))


@pytest.mark.parametrize(("target", "given"), [("torchax", ""), ("torch_xla", "ranks=True, ")])
def test_one_device_on_request(target: str, given: str) -> None:
    """Of a program for several devices; another one does not use more in any case."""
    text = migrated(f"{HEAD}mp.spawn(main)\n", target, num_cores="1", entry=True)
    assert f"tpu_runtime.setup({given}num_cores=1)\n" in text
    assert "num_cores" not in migrated(
        "import torch\nx = torch.ones(2).cuda()\n", num_cores="1", entry=True
    )


FSDP = f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n{HEAD}"
SHARDED = f"""from functools import partial
from torch.distributed.fsdp import MixedPrecision, StateDictType
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
{FSDP}"""


def test_fully_sharded_data_parallel() -> None:
    wrapped = "    model = FSDP(net, auto_wrap_policy=policy, device_id=rank)\n"
    text = migrated(FSDP + wrapped, unsafe=True, shard="fsdp")
    assert text.endswith("    model = tpu_runtime.FullyShardedDataParallel(net)\n")
    assert "torch.distributed.fsdp" not in text
    precision = "    model = FSDP(net, mixed_precision=policy)\n"
    result = run(FSDP + precision, unsafe=True, shard="fsdp")
    assert not result.changed
    assert "mixed_precision of FullyShardedDataParallel" in constructs(result)[0].message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("net = FSDP(net, auto_wrap_policy=policy, device_id=rank)",
         "net = tpu_runtime.UnshardedDataParallel(net, auto_wrap_policy=policy)"),
        ("wrap = partial(FSDP, mixed_precision=MixedPrecision(torch.float16))",
         "wrap = partial(tpu_runtime.UnshardedDataParallel, "
         "mixed_precision=MixedPrecision(torch.float16))"),
        ("part = isinstance(net, FSDP) and FSDP.fsdp_modules(net)", None),
        ("with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT): pass", None),
        ("with FSDP.summon_full_params(net): pass",
         "with tpu_runtime.UnshardedDataParallel.summon_full_params(net): pass"),
        ("scaler = ShardedGradScaler()", None),
    ],
)  # fmt: skip
def test_sharded_models_of_ranks_become_whole(before: str, after: str | None, target: str) -> None:
    text = migrated(f"{SHARDED}    {before}\n", target)
    assert text.splitlines()[-1].strip() == (after or before)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("net = FSDP(net, device_mesh=mesh)", "device_mesh of FullyShardedDataParallel"),
        ("net = partial(FSDP, param_init_fn=fill)", "param_init_fn of FullyShardedDataParallel"),
        ("net = FSDP(net, None, strategy)", "unnamed arguments behind the first"),
        ("class Own(FSDP): pass", "divides parameters in its own way"),
        ("state = FSDP.optim_state_dict(net, optimizer)", "optim_state_dict is not understood"),
        ("from torch.distributed.fsdp import fully_shard; fully_shard(net)",
         "torch.distributed.fsdp.fully_shard is not understood"),
    ],
)  # fmt: skip
def test_what_is_sharded_in_another_way_stays(line: str, reason: str, target: str) -> None:
    result = run(f"{SHARDED}    {line}\n", target)
    assert not result.changed
    assert reason in constructs(result)[0].message


@pytest.mark.parametrize("target", TARGETS)
def test_a_library_may_ask_for_a_wrapper(target: str) -> None:
    """Whoever wraps: what that becomes is a subclass of torch's."""
    source = (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "def plain(model):\n    return model.module if isinstance(model, (DDP,)) else model\n"
    )
    result = run(source, target)
    assert not result.changed and not reported(result)


def test_data_parallel_needs_no_ranks() -> None:
    source = (
        "import torch\nfrom torch.nn import DataParallel\n"
        "if torch.cuda.device_count() > 1:\n    model = DataParallel(model, [0, 1]).cuda()\n"
    )
    assert migrated(source) == (
        "import torch\nimport tpu_runtime\n"
        "if tpu_runtime.device_count() > 1:\n"
        '    model = tpu_runtime.DataParallel(model).to("jax")\n'
    )


def test_numbers_of_ranks_in_a_file_of_a_project(tmp_path: Path) -> None:
    """The same as in a snippet; and a second run finds nothing to do."""
    last = "    dist.all_reduce(loss)\n    loss = loss.item() / dist.get_world_size()\n"
    write(tmp_path, train=f"{HEAD}{last}    workers = args.workers // dist.get_world_size()\n")
    for _ in range(2):
        migrate_paths([tmp_path], config=UNSAFE, write=True, allow_dirty=True)
        text = (tmp_path / "train.py").read_text()
        assert text.endswith(f"{last}    workers = args.workers // tpu_runtime.device_count()\n")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_a_program_moves_with_all_its_files_or_with_none(tmp_path: Path) -> None:
    parts = (
        "import torch.distributed as dist\n\n\ndef part(rank, n):\n    dist.barrier()\n"
        "    return items[rank::n]\n\n\ndef move(x):\n    return x.cuda()\n"
    )
    layers = "import torch\n\n\ndef move(x):\n    return x.cuda()\n"
    train = f"from parts import part, move\nimport layers\n{HEAD}"
    write(tmp_path, train=train, parts=parts, layers=layers)
    report = migrate_paths([tmp_path], config=UNSAFE)
    assert not report.changed  # nor what knows nothing of ranks: the program has it on its GPUs
    messages = {d.message for _, d in report.diagnostics(Outcome.REPORTED)}
    assert any("parts.py, line 6" in m for m in messages)
    assert any("belongs to a program for several devices, which train.py starts" in m
               for m in messages)  # fmt: skip

    write(tmp_path, parts=parts.replace("rank::n", "0:1"))
    report = migrate_paths([tmp_path], config=UNSAFE)
    assert {f.path.name for f in report.changed} == {"train.py", "parts.py", "layers.py"}


@pytest.mark.parametrize(
    ("text", "infers"),
    [
        ("# no .backward() here, no optim", True),
        ('"""Trainer, loss.backward()"""', True),
        ("getattr(loss, 'backward')()", False),
        ("from torch.func import grad", False),
    ],
)
def test_what_a_program_does_is_no_matter_of_its_comments(text: str, infers: bool) -> None:
    result = run(f"{INFERENCE}    {text}\n\nmain(args)\n", "torchax", entry=True, shard="tp")
    assert ("jax://alone" in result.source.decode()) is infers


def test_a_comment_on_gradients_switches_none_off() -> None:
    source = INFERENCE.replace("@torch.no_grad()", "# torch.no_grad()")
    result = run(f"{source}\nmain(args)\n", "torchax", entry=True, shard="tp")
    assert b"jax://alone" not in result.source


INFERENCE = """import os
import torch
import torch.distributed as dist

@torch.no_grad()
def main(args):
    dist.init_process_group("nccl", init_method="env://", world_size=args.world_size)
    model = net.cuda()
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = x.chunk(dist.get_world_size())[dist.get_rank()]", None),
        ("mine = prompts[dist.get_rank()::dist.get_world_size()]", None),
        ("world_size = int(os.environ['WORLD_SIZE'])", "world_size = 1"),
        ("world_size = os.environ.get('WORLD_SIZE')", "world_size = '1'"),
        ("seed = args.seed * dist.get_world_size() + dist.get_rank()", None),
        ("dist.all_gather(parts, x); dist.all_to_all_single(out, x)", None),
        ("x = x.to(f\"cuda:{os.environ['LOCAL_RANK']}\")", "x = x.to('jax')"),
        ("x = x.to(dist.get_rank() % torch.cuda.device_count())", 'x = x.to("jax")'),
        (
            "print(f'{torch.cuda.device_count()} GPUs')",
            "print(f'{tpu_runtime.device_count()} GPUs')",
        ),
    ],
)
def test_without_training_one_rank_does_what_all_do(before: str, after: str | None) -> None:
    text = migrated(f"{INFERENCE}    {before}\n", shard="tp")
    assert (
        'init_process_group("jax", init_method="jax://alone", world_size=args.world_size)' in text
    )
    assert text.splitlines()[-1].strip() == (after or before)


def test_a_rank_that_nothing_uses_any_more_goes_with_its_import() -> None:
    rank = 'local_rank = int(os.environ["LOCAL_RANK"])'
    text = migrated(f"{INFERENCE}    {rank}\n    torch.cuda.set_device(local_rank)\n", shard="tp")
    assert "local_rank" not in text and "import os" not in text
    text = migrated(
        f"{INFERENCE}    {rank}\n    torch.cuda.set_device(local_rank)\n    f(local_rank)\n",
        shard="tp",
    )
    assert "local_rank = 0\n    f(local_rank)" in text
    for more in ("global local_rank", "print('%(local_rank)s' % locals())",
                 "def f():\n        nonlocal local_rank\n        local_rank += 1"):  # fmt: skip
        lines = f"{rank}\n    torch.cuda.set_device(local_rank)"
        order = (more, lines) if more.startswith("global") else (lines, more)
        text = migrated(f"{INFERENCE}    {order[0]}\n    {order[1]}\n", shard="tp")
        assert "local_rank = 0" in text
    text = migrated(f"{INFERENCE}    {rank}\n", shard="tp")  # nothing has used it before
    assert "local_rank = 0" in text
    text = migrated(
        f"{INFERENCE}    {rank}\n    torch.cuda.set_device(local_rank)\n    os.getcwd()\n",
        shard="tp",
    )
    assert "import os" in text and "local_rank" not in text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("n = torch.cuda.device_count()", "device_count() may stand for the number of ranks"),
        ("n = torch.cuda.device_count", "device_count() may stand for the number of ranks"),
        ("n = int(f'{torch.cuda.device_count()}')", "device_count() may stand for the number"),
        ("torch.multiprocessing.spawn(main, nprocs=2)", "the program starts its ranks itself"),
        ("dist.send(x, 1)", "torch.distributed.send is not understood"),
        ("group = dist.new_group([0, 1])", "torch.distributed.new_group is not understood"),
        ("model(x).sum().backward()", "a loss is a sum"),
    ],
)
def test_inference_that_one_rank_can_not_do_stays(line: str, reason: str) -> None:
    result = run(f"{INFERENCE}    {line}\n", shard="tp")
    assert not result.changed
    assert all(reason in d.message for d in constructs(result))


def test_training_in_a_file_that_knows_no_ranks_is_training(tmp_path: Path) -> None:
    loop = "def fit(net, loss):\n    loss.backward()\n"
    write(tmp_path, sample=f"from loop import fit\n{INFERENCE}", loop=loop)
    assert not migrate_paths([tmp_path], config=TOGETHER).changed
    write(tmp_path, loop=loop.replace("backward", "item"))
    assert [f.path.name for f in migrate_paths([tmp_path], config=TOGETHER).changed] == [
        "sample.py"
    ]


def test_all_programs_that_share_a_file_are_alone_or_none(tmp_path: Path) -> None:
    shared = (
        "import torch.distributed as dist\n\n\ndef total(x):\n    x = x.cuda()\n"
        "    dist.all_reduce(x)\n    return x\n"
    )
    write(tmp_path, shared=shared, sample=f"from shared import total\n{INFERENCE}")
    assert len(migrate_paths([tmp_path], config=TOGETHER).changed) == 2
    write(tmp_path, train=f"from shared import total\n{HEAD}")
    assert not migrate_paths([tmp_path], config=TOGETHER).changed


def test_devices_that_another_file_counts_keep_a_program_whole(tmp_path: Path) -> None:
    machine = "import torch\n\n\ndef parts():\n    return torch.cuda.device_count()\n"
    write(tmp_path, machine=machine, sample=f"from machine import parts\n{INFERENCE}")
    report = migrate_paths([tmp_path], config=TOGETHER)
    assert "sample.py" not in [f.path.name for f in report.changed]
    messages = [d.message for _, d in report.diagnostics(Outcome.REPORTED)]
    assert any("(machine.py, line 5)" in message for message in messages)


# In the way of karpathy/nanoGPT: a launcher's variable decides whether there are ranks at all.
LAUNCHED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

device = "cuda"
batch_size = 4
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    world_size = dist.get_world_size()
    device = f"cuda:{rank}"
else:
    rank = 0
    world_size = 1
seen = world_size * batch_size * 3.5
model = net.to(device)
if ddp:
    model = DDP(model, device_ids=[rank])
raw = model.module if ddp else model
for step in range(9):
    x = torch.randn(batch_size, 3, device=device)
    if ddp and step == 8:
        dist.barrier()
if ddp:
    dist.destroy_process_group()
"""


def test_what_nobody_launches_is_rewritten_and_what_a_launcher_starts_stays() -> None:
    result = run(LAUNCHED, "torchax", entry=True, shard="fsdp")
    after = result.source.decode()
    gone = [line for line in LAUNCHED.splitlines() if line not in after.splitlines()]
    assert gone == ['device = "cuda"']
    assert 'device = "jax"' in after and "tpu_runtime.setup()" in after
    assert reported(result) == [
        "dist.init_process_group", 'os.environ["RANK"]', "dist.get_world_size", 'f"cuda:{rank}"',
        "DDP", "dist.barrier", "dist.destroy_process_group",
    ]  # fmt: skip
    assert_sound(result, "torchax", entry=True, shard="fsdp")


@pytest.mark.parametrize(
    "asked",
    [
        'os.environ.get("RANK") is not None',
        '"WORLD_SIZE" in os.environ',
        'int(os.getenv("WORLD_SIZE", "1")) > 1',
        'not int(os.environ.get("LOCAL_RANK", -1)) == -1',
        'dist.is_available() and int(os.environ.get("RANK", -1)) >= 0',
    ],
)
def test_questions_that_only_a_launcher_answers(asked: str) -> None:
    source = LAUNCHED.replace('int(os.environ.get("RANK", -1)) != -1', asked)
    assert 'device = "jax"' in run(source, "torchax", entry=True, shard="fsdp").source.decode()


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ('ddp = int(os.environ.get("RANK", -1)) != -1', "ddp = args.distributed"),
        ('ddp = int(os.environ.get("RANK", -1)) != -1', "ddp = False"),
        ('int(os.environ.get("RANK", -1)) != -1', 'int(os.environ.get("RANK", 0)) != -1'),
        ("seen = world_size", "local = os.environ['LOCAL_RANK']\nseen = world_size"),
        ("seen = world_size", "seen = dist.get_world_size() + world_size"),
        ("seen = world_size", "ddp = True\nseen = world_size"),
    ],
)
def test_ranks_that_are_there_without_a_launcher_stay_with_all(line: str, other: str) -> None:
    assert line in LAUNCHED
    source = LAUNCHED.replace(line, other)
    result = run(source, "torchax", entry=True, shard="fsdp")
    assert result.source.decode() == source and reported(result)


def test_one_process_takes_the_place_of_launched_ranks_only_where_it_can() -> None:
    sampled = LAUNCHED.replace("seen = world_size * batch_size * 3.5\n", "").replace(
        "x = torch.randn(batch_size, 3, device=device)", "x = next(batches).to(device)"
    )
    sampled = sampled.replace(
        "    model = DDP", "    sampler = DistributedSampler(data)\n    model = DDP"
    ).replace(
        "device = \"cuda\"\n",
        "from torch.utils.data import DistributedSampler\n\ndevice = \"cuda\"\n", 1
    )  # fmt: skip
    alone = run(sampled, "torchax", entry=True, shard="fsdp").source.decode()
    assert "model = DDP(model, device_ids=[rank])" in alone and 'device = "jax"' in alone
    joined = run(sampled, "torchax", entry=True, shard="fsdp", unsafe=True).source.decode()
    assert "tpu_runtime.FullyShardedDataParallel(model)" in joined
    infers = "with torch.no_grad():\n    y = model(x)\n"
    together = run(LAUNCHED + infers, "torchax", entry=True, shard="fsdp").source.decode()
    assert "jax://alone" in together


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "source",
    [
        "from torch.distributed._composable import checkpoint\ncheckpoint(model)",
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
        "checkpoint_wrapper\nmodel = checkpoint_wrapper(model)",
    ],
)
def test_activation_checkpointing_has_nothing_to_do_with_ranks(source: str, target: str) -> None:
    result = run(f"{HEAD.replace('    model =', '    net =')}\n{source}\n", target)
    assert result.changed
    assert f"\n{source}\n" in result.source.decode()
    assert not reported(result)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "source",
    [
        "from torch.distributed.tensor import DTensor\nif type(x) is DTensor: f()",
        "from torch.distributed.tensor import DTensor\nif isinstance(x, (list, DTensor)): f()",
        "from torch.distributed import _functional_collectives as c\nif c is not None: f()",
        "if hasattr(dist._functional_collectives, 'all_reduce'): f()",
        "try: f()\nexcept dist.DistBackendError: pass",
        "if dist.is_ucc_available(): f()",
    ],
)
def test_questions_and_types_keep_no_program(source: str, target: str) -> None:
    result = run(f"{HEAD}\n{source}\n", target)
    assert result.changed and not reported(result)


@pytest.mark.parametrize(
    ("source", "stays"),
    [
        ("import multiprocessing as m\ndef f(): print(os.getpid())\nm.Process(target=f)", False),
        ("import multiprocessing as m\nn = m.get_context('spawn').Value('i', 0)", False),
        ("mp.get_context()._name", False),
        ("import tools\nc = tools.get_context()", False),
        ("import multiprocessing as m\nm.Process(target=main)", True),
        ("def go(): main(0, 1, 2)\nmp.Process(target=go)", True),
        ("import multiprocessing as m\nm.Process(target=other.go)", True),
        ("c = mp.get_context('spawn')\nc.Process(target=main)", True),
    ],
)  # fmt: skip
def test_processes_that_may_be_ranks(source: str, stays: bool) -> None:
    """torch_xla starts the ranks itself; other processes are none of its business."""
    assert run(f"{HEAD}\n{source}\n", "torch_xla").changed is not stays


def test_a_group_that_is_made_with_options_of_its_own() -> None:
    """A back end among them would be given twice."""
    source = HEAD.replace('"nccl", rank=rank, world_size=world_size', "**options")
    once = migrated(source, "torchax")
    assert 'dist.init_process_group(**dict(options, backend="jax", device_id=None))' in once
    assert migrated(once, "torchax") == once
    assert 'init_process_group("xla", init_method' in migrated(source, "torch_xla")


@pytest.mark.parametrize("target", TARGETS)
def test_a_library_exchanges_as_the_program_that_calls_it(target: str) -> None:
    """What starts the ranks is in another folder, and need not be known."""
    source = (
        "import torch\nimport torch.distributed as dist\n\n\ndef total(x):\n"
        "    if dist.is_initialized() and dist.get_world_size() > 1:\n"
        "        dist.all_reduce(x, op=dist.ReduceOp.SUM)\n    return x.cuda()\n"
    )
    result = run(source, target)
    assert result.changed and not reported(result)
    assert reported(run(source.replace("all_reduce(", "all_reduce_coalesced("), target))
    assert reported(run(source, target, portable=True))


def test_torch_xla_starts_processes_without_files_for_what_they_print() -> None:
    result = run(f"{HEAD}    mp.start_processes(main, nprocs=2, log_line_prefix_template='x')\n",
                 "torch_xla")  # fmt: skip
    (found,) = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert "torch_xla.launch has no log_line_prefix_template" in found.message
