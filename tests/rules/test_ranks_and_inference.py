"""Programs whose ranks do not train, share files, or are not launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from tests.helpers import TARGETS, assert_sound, constructs, migrated, reported, run
from tests.rules.ranks import HEAD, INFERENCE, LAUNCHED, TOGETHER, UNSAFE, write


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


@pytest.mark.parametrize(
    ("text", "infers"), [("# no loss.backward()", True), ("f.backward()", False)]
)
def test_what_a_program_does_is_no_matter_of_comments_in_its_files(
    text: str, infers: bool, tmp_path: Path
) -> None:
    write(tmp_path, main=f"from parts import net\n{INFERENCE}\nmain(args)\n")
    write(tmp_path, parts=f"import torch\n\nnet = torch.nn.Linear(2, 2)\n{text}\n")
    report = migrate_paths([tmp_path], config=TOGETHER)
    texts = [f.result.source.decode() for f in report.files]
    assert any("jax://alone" in each for each in texts) is infers


def test_a_comment_on_gradients_switches_none_off() -> None:
    source = INFERENCE.replace("@torch.no_grad()", "# torch.no_grad()")
    result = run(f"{source}\nmain(args)\n", "torchax", entry=True, shard="tp")
    assert b"jax://alone" not in result.source


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
        ("dist.send(x, 1)", "torch.distributed.send is not supported"),
        ("group = dist.new_group([0, 1])", "torch.distributed.new_group is not supported"),
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
