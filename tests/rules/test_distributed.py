"""Programs for several devices: ranks stay ranks, one process takes their place, or all stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from tests.helpers import TARGETS, constructs, migrated, reported, run
from tests.rules.ranks import HEAD, UNSAFE, line, obstacle, write


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
        ("import apex\n    other = apex.parallel.convert_syncbn_model(net)", "other = net"),
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
    "for i in range(rank, n, world_size): f(i)": "rank is passed to range()",
    "mine = np.arange(rank, n, world_size)": "rank is passed to np.arange()",
    "start = rank * len(data)": "start is computed from the rank",
    "if i % world_size != rank: skip()": "compares with the rank",
    "part = data.shard(4, index=rank)": "rank is passed to data.shard()",
    "part = np.load(f'shard_{rank}.npy')": "part of a string that is used",
    "grads = [x.grad for x in shards[rank].parameters()]": "rank is used in a way",
    "self.r = dist.get_rank()": "r is the rank",
    "seeds = data[rank * 10:]": "is used in a way",
    # a number of ranks in what is computed
    "loss = loss / world_size": "computes with the number of ranks",
    "loss *= dist.get_world_size()": "loss is computed from the number of ranks",
    "p.grad.mul_(1.0 / world_size)": "is passed to p.grad.mul_()",
    "x.mul_(dist.get_world_size() ** -1)": "is passed to x.mul_()",
    "scale = 1 / world_size": "scale is computed from the number of ranks",
    "dist.all_reduce(x); x = x / (len(y) * world_size)": "whether len(y) * world_size",
    "dist.all_reduce(x); x = x / max(1, world_size)": "whether max(1, world_size)",
    "dist.all_reduce(x); x /= n": "whether n is a number of ranks",
    "num = t.item(); num = num / world_size": "num / world_size computes",
    "c = right / (len(dataset) / world_size)": "computes with the number of ranks",
    "seen = x.size(0) * world_size": "computes with the number of ranks",
    "all_there = done.item() == world_size": "compares with the number of ranks",
    "hook = partial(scale, dist.get_world_size())": "is passed to partial()",
    "how_many = dist.get_world_size": "get_world_size is passed on",
    "cfg['world'] = dist.get_world_size()": "is put into cfg['world']",
    "x = torch.zeros(world_size, 3)": "world_size is passed to torch.zeros()",
    # under another name, or behind something
    "n = max(dist.get_world_size(), 1); loss = loss / n": "loss / n computes",
    "n = args.n or dist.get_world_size(); w = n; loss = loss / w": "loss / w computes",
    "n = 1 if alone else dist.get_world_size(); loss = loss / n": "loss / n computes",
    "loss = loss / cfg['world_size']": "computes with the number of ranks",
    "part = x[:cfg.get('batch_size')]": "is used in a way",
    "x = torch.zeros(BATCH_SIZE)": "BATCH_SIZE is passed to torch.zeros()",
    "noise = torch.randn(imgs_per_gpu, 8)": "imgs_per_gpu is passed to torch.randn()",
    "batch_loss /= world_size": "batch_loss is computed from the number of ranks",
    # what is computed from configuration, under a name that nobody follows
    "n_samples = len(loader) * batch_size": "n_samples is computed from the batch size",
    "micro_batch = batch_size // 4": "micro_batch is computed from the batch size",
    "node = rank // 8": "node is computed from the rank",
    # gathering into what the analysis has not seen made
    "out = list(buffer.unbind(0)); dist.all_gather(out, x)": "as long as the number of ranks",
    # a batch size that is more than one of a loader
    "part = args.batch_size / 4": "part is computed from the batch size",
    "x = images[:args.batch_size]": "is used in a way",
    "noise = torch.randn(args.batch_size, 8)": "args.batch_size is passed to torch.randn()",
    "x = x.view(args.batch_size, -1)": "args.batch_size is passed to x.view()",
    "seen += args.batch_size": "seen is computed from the batch size",
    "acc = right / args.batch_size": "computes with the batch size",
    "steps = len(sampler) // args.batch_size": "computes with the batch size",
    # losses and samplers
    "loss = F.mse_loss(x, y, reduction='sum')": "a loss is a sum",
    "loss.sum().backward()": "a loss is a sum",
    "scaler.scale(d.sum()).backward()": "a loss is a sum",
    "total = bce + 0.5 * kld.sum(); loss = total; loss.backward()": "a loss is a sum",
    "loss = criterion(x); dist.all_reduce(loss); loss.backward()": "used with gradients",
    "loader = DataLoader(data, 4, shuffle=True)": "a loader without a sampler",
    "loader = DataLoader(data, batch_sampler=mine)": "a batch sampler",
    "loader = DataLoader(data, sampler=Twice(DistributedSampler(data)))": "than a loader",
    "order = list(sampler)": "than a loader",
    # other ways to start and to exchange
    "dist.send(x, 1)": "torch.distributed.send is not supported",
    "part = dist.new_group([0])": "torch.distributed.new_group is not supported",
    "model.register_comm_hook(None, hook)": "register_comm_hook changes",
    "mp.Process(target=other.main)": "starts processes that do other work",
    "p = mp.Process(target=main)": "starts processes that do other work",
    "ctx = mp.spawn(main, nprocs=2, join=False)": "continues while its processes run",
    "found = {k: os.environ[k] for k in ('RANK', 'WORLD_SIZE')}": "RANK is read",
    "rank = int(os.environ['SLURM_PROCID'])": "SLURM_PROCID is set by another launcher",
}


@pytest.mark.parametrize(("source", "reason"), OBSTACLES.items())
def test_what_can_not_be_followed_keeps_the_program_whole(source: str, reason: str) -> None:
    message = obstacle(f"    {source}\n")
    assert reason in message and "(line 13)" in message


def test_a_sampler_or_a_model_of_its_own() -> None:
    assert "Mine has its own way to divide samples" in obstacle(
        "class Mine(DistributedSampler):\n    pass\n"
    )
    model = (
        "class Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        dist.all_reduce(x)\n        return x\n"
    )
    assert "a model's result is reduced" in obstacle(model)


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


@pytest.mark.parametrize(
    "text", ["'%d GPUs' % {}", "'GPUs: ' + str({}) + '.'", "str({}) + ' GPUs'", "f'{{{}}}' + end"]
)
def test_a_number_of_gpus_that_is_printed_is_no_computation(text: str) -> None:
    source = (
        f"import torch\nlog.cprint({text.format('torch.cuda.device_count()')})\n"
        "model = torch.nn.DataParallel(model)\n"
    )
    assert "model = tpu_runtime.DataParallel(model)" in migrated(source)


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
    with pytest.raises(UsageError, match="--shard fsdp: not supported on torch_xla"):
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
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.fsdp import FSDPModule, MixedPrecision, MixedPrecisionPolicy
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp import register_fsdp_forward_method
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
        ("fully_shard(net, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(kind))",
         "tpu_runtime.replicate(net, mp_policy=MixedPrecisionPolicy(kind))"),
        ("shard = partial(fully_shard, shard_placement_fn=place)",
         "shard = partial(tpu_runtime.replicate, shard_placement_fn=place)"),
        ("part = isinstance(net, FSDPModule) and net.unshard()", None),
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
        ("net = FSDP(net, None, strategy)", "more than one positional argument"),
        ("class Own(FSDP): pass", "class divides parameters"),
        ("FSDP.rekey_optim_state_dict(x, kind, net)", "rekey_optim_state_dict is not supported"),
        ("fully_shard(net, mesh=mesh)", "mesh of fully_shard is not supported"),
        ("fully_shard(net, offload_policy=o)", "offload_policy of fully_shard is not supported"),
        ("f = partial(fully_shard, **options)", "**options may contain options that"),
        ("register_fsdp_forward_method(net, 'encode')", "forward_method is not supported"),
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


@pytest.mark.parametrize("target", TARGETS)
def test_exchanges_that_torch_has_no_longer(target: str) -> None:
    """A rank has one device; what cannot be put so is reported alone, and keeps no program."""
    start = (
        'import torch\nimport torch.distributed as dist\ndist.init_process_group("nccl")\n'
        "x = torch.ones(1).cuda()\n"
    )
    text = migrated(f"{start}dist.all_reduce_multigpu([x], op=op)\n", target)
    assert text.endswith("\ndist.all_reduce(x, op=op)\n")
    for left in ("dist.all_reduce_multigpu([*x])", "dist.broadcast_multigpu([x], 0)"):
        result = run(f"{start}{left}\n", target)
        assert b".cuda()" not in result.source and result.source.decode().endswith(f"{left}\n")
        assert [found.code for found in constructs(result) if found.outcome == "reported"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("caught", ["ImportError", "(ImportError, OSError)", "ValueError"])
def test_what_stands_behind_an_import_that_fails(caught: str, target: str) -> None:
    source = (
        "import torch\nimport torch.distributed as dist\nfrom torch.distributed import rpc\n"
        'dist.init_process_group("nccl")\n'
        "try:\n    from torch.distributed.pipeline.sync import Pipe\n"
        f'    rpc.init_rpc("worker")\nexcept {caught}:\n    Pipe = None\n'
    )
    assert run(source, target).changed is (caught != "ValueError")
