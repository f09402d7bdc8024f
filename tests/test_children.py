"""Child processes: those that use the device are reported, all others are left in peace."""

from __future__ import annotations

import pytest
from helpers import constructs, run

HEAD = """
import torch
import multiprocessing
import torch.multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

device = torch.device("cuda")
cpu = torch.device("cpu")
model = Net().to(device)
shared = Net()
copied = Net()
copied.cuda()


def on_gpu(i):
    return torch.ones(2).cuda()


def by_name(i):
    return torch.ones(2, device=device)


def through(i):
    return on_gpu(i)


def on_cpu(i):
    return torch.ones(2, device=cpu) if torch.cuda.is_available() else i


def passed(device):
    return torch.ones(2, device=device)


ctx = mp.get_context("spawn")
pool = mp.Pool(4)
threads = ThreadPool(4)
"""

USING = [
    "mp.Process(target=on_gpu, args=(0,)).start()",
    "multiprocessing.Process(target=by_name)",
    "ctx.Process(target=through)",
    "mp.get_context('spawn').Process(target=on_gpu)",
    "mp.Process(target=on_cpu, args=(model,))",
    "mp.Process(target=on_cpu, args=(1, copied))",
    "mp.Process(target=on_cpu, kwargs={'x': model})",
    "mp.Process(target=passed, args=(device,))",
    "mp.Process(None, on_gpu, 'name', (0,))",
    "pool.map(on_gpu, range(4))",
    "pool.apply_async(on_cpu, (x.cuda(),))",
    "with ctx.Pool(2) as p:\n    p.starmap(by_name, y)",
    "with ProcessPoolExecutor() as p:\n    p.submit(on_gpu, 1)",
    "class Worker(mp.Process):\n    def run(self):\n        self.x = torch.ones(2).cuda()",
    "mp.Process(target=unknown, args=(queue,))",
    "model.share_memory()",
    "x = torch.ones(2).cuda().share_memory_()",
]

PEACEFUL = [
    "mp.set_start_method('spawn')",
    "mp.set_sharing_strategy('file_system')",
    "queue = mp.Queue()",
    "mp.Process(target=on_cpu, args=(0, shared))",
    "mp.Process(target=passed, args=(cpu,))",
    "multiprocessing.Process(target=unknown, args=(queue,))",
    "pool.map(on_cpu, range(4))",
    "with mp.Pool(4) as p:\n    p.map(on_cpu, range(3))",
    "threads.map(on_gpu, range(4))",
    "with ThreadPoolExecutor() as p:\n    p.submit(on_gpu, 1)",
    "list(map(on_gpu, range(4)))",
    "shared.share_memory()",
    "class Worker(mp.Process):\n    def run(self):\n        self.x = torch.ones(2)",
    "class Net(torch.nn.Module):\n    def run(self):\n        self.x = torch.ones(2).cuda()",
]


def found(code: str) -> list[str]:
    result = run(f"{HEAD}{code}\n", entry=False)
    return [d.outcome for d in constructs(result) if d.code == "DST004"]


@pytest.mark.parametrize("code", USING)
def test_the_device_in_a_child_is_reported(code: str) -> None:
    assert found(code) == ["reported"]


def test_a_file_without_gpu_code_is_left_in_peace() -> None:
    source = "import torch.multiprocessing as mp\nmp.Process(target=unknown, args=(x,))  # cuda\n"
    assert not run(source).diagnostics


def test_children_on_the_cpu_do_not_keep_a_program_from_being_migrated() -> None:
    result = run(f"{HEAD}mp.Process(target=on_cpu, args=(0, shared)).start()\n", entry=False)
    assert b'device = torch.device("jax")' in result.source


@pytest.mark.parametrize("code", PEACEFUL)
def test_children_on_the_cpu_are_left_in_peace(code: str) -> None:
    assert found(code) == []
