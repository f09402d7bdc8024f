"""Child processes: those that use the device are reported, all others are left in peace."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import constructs, run, write_tree

from migrator.runs.run import migrate_paths

HEAD = """
import torch
import multiprocessing
from functools import partial
import torch.multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

device = torch.device("cuda")
cpu = torch.device("cpu")
model = Net().to(device)
shared = Net()
copied = Net()
copied.cuda()
placed = Net()
placed.to(device)
ctx = ctx.get_context("spawn")


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


def reads(i):
    return model(i).cpu()


class Trainer:
    device = torch.device("cuda")

    def __init__(self, path):
        self.model, self.path = Net().cuda(), path
        self.shared = Net()
        self.pool = mp.Pool(4)
        self.ctx = mp.get_context("spawn")
        self.later = partial(on_gpu, 1)

    def work(self, i):
        return self.model(i)

    def on_its_device(self, i):
        return torch.ones(2, device=self.device)

    def idle(self, i):
        return i + 1

    def run(self, out):
        STATEMENT


trainer = Trainer()
bound = partial(on_gpu, 1)
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
    "mp.Process(target=on_cpu, args=(1, placed))",
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
    "mp.Process(target=lambda: on_gpu(1))",
    "mp.Process(target=reads, args=(1,))",
    "mp.Process(target=partial(on_gpu, 1))",
    "mp.Process(target=partial(on_cpu, model))",
    "mp.Process(target=partial(partial(on_gpu), i=1))",
    "mp.Process(target=bound)",
    "mp.Process(target=trainer.work, args=(1,))",
    "mp.Process(target=Trainer().work)",
    "pool.map(partial(on_gpu), range(4))",
    "pool.map(lambda i: torch.ones(2).cuda() * i, range(4))",
    "trainer.model.share_memory()",
    "trainer.pool.map(on_gpu, range(4))",
]

IN_A_METHOD = [
    "self.model.share_memory()",
    "self.pool.map(on_gpu, range(4))",
    "self.pool.apply_async(self.work, (1,))",
    "self.ctx.Process(target=on_gpu).start()",
    "mp.Process(target=self.work)",
    "mp.Process(target=self.on_its_device)",
    "mp.Process(target=self.later)",
    "mp.Process(target=on_cpu, args=(self.model,))",
    "mp.Process(target=lambda: self.model(1))",
]
PEACEFUL_IN_A_METHOD = [
    "self.shared.share_memory()",
    "self.pool.map(on_cpu, range(4))",
    "self.pool.map(self.idle, range(4))",
    "self.ctx.Process(target=self.idle).start()",
    "mp.Process(target=partial(self.idle, 1), args=(self.path,))",
    "self.pool.map(on_cpu, [self.model(o).cpu().numpy() for o in out])",
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
    "threads.map(on_cpu, range(4))",
    "with ThreadPoolExecutor() as p:\n    p.submit(on_cpu, 1)",
    "list(map(on_gpu, range(4)))",
    "shared.share_memory()",
    "class Worker(mp.Process):\n    def run(self):\n        self.x = torch.ones(2)",
    "mp.Process(target=lambda: on_cpu(1))",
    "mp.Process(target=partial(on_cpu, shared))",
    "mp.Process(target=trainer.idle)",
    "pool.map(on_cpu, model(x).tolist())",
    "class Net(torch.nn.Module):\n    def run(self):\n        self.x = torch.ones(2).cuda()",
]


def program(statement: str = "pass") -> str:
    return HEAD.replace("STATEMENT", statement)


def found(code: str) -> list[str]:
    result = run(f"{program()}{code}\n", entry=False)
    return [d.outcome for d in constructs(result) if d.code == "DST004"]


@pytest.mark.parametrize("code", USING)
def test_the_device_in_a_child_is_reported(code: str) -> None:
    assert found(code) == ["reported"]


@pytest.mark.parametrize("taken", ["Child", "*"])
def test_a_process_under_a_name_that_another_file_gives_it_is_reported(
    tmp_path: Path, taken: str
) -> None:
    main = f"import torch\nfrom own import {taken}\nx = torch.ones(2).cuda()\nChild(target=x.add)\n"
    own = "from torch.multiprocessing import Process as Child\n"
    report = migrate_paths([write_tree(tmp_path, {"main.py": main, "own.py": own})], "torchax")
    assert "DST004" in {d.code for file in report.files for d in file.result.diagnostics}


def test_a_file_without_gpu_code_is_left_in_peace() -> None:
    source = "import torch.multiprocessing as mp\nmp.Process(target=unknown, args=(x,))  # cuda\n"
    assert not run(source).diagnostics


def test_children_on_the_cpu_do_not_keep_a_program_from_being_migrated() -> None:
    source = f"{program()}mp.Process(target=on_cpu, args=(0, shared)).start()\n"
    result = run(source, entry=False)
    assert b'device = torch.device("jax")' in result.source


@pytest.mark.parametrize("code", PEACEFUL)
def test_children_on_the_cpu_are_left_in_peace(code: str) -> None:
    assert found(code) == []


def found_in_a_method(statement: str) -> list[str]:
    result = run(program(statement), entry=False)
    return [d.outcome for d in constructs(result) if d.code == "DST004"]


@pytest.mark.parametrize("statement", IN_A_METHOD)
def test_what_is_held_by_an_object_is_followed(statement: str) -> None:
    assert found_in_a_method(statement) == ["reported"]


@pytest.mark.parametrize("statement", PEACEFUL_IN_A_METHOD)
def test_an_object_that_holds_a_device_may_start_children_on_the_cpu(statement: str) -> None:
    assert found_in_a_method(statement) == []


THREADS = [
    "threads.map(on_gpu, range(4))",
    "with ThreadPoolExecutor() as p:\n    p.submit(on_gpu, 1)",
    "threading.Thread(target=by_name, args=(1,), daemon=True).start()",
    "threading.Thread(target=on_cpu, args=(model,))",
    "class Loader(threading.Thread):\n    def run(self):\n        self.x = self.x.cuda()",
    "async def main(x):\n    return await asyncio.to_thread(lambda: x.cuda())",
    "async def main(loop, x):\n    return await loop.run_in_executor(None, on_gpu, 1)",
    "threading.Timer(3.0, on_gpu, (1,)).start()",
    "threading.Timer(3.0, function=on_gpu).start()",
    "_thread.start_new_thread(on_gpu, (1,))",
    "Parallel(n_jobs=2, backend='threading')(delayed(on_gpu)(i) for i in range(4))",
    "Parallel(prefer='threads')(delayed(on_cpu)(model) for i in range(4))",
    "with Parallel(2, prefer='threads') as many:\n    many([delayed(by_name)(1)])",
]
IMPORTS = "import asyncio\nimport threading\nimport _thread\nfrom joblib import Parallel, delayed\n"


@pytest.mark.parametrize("code", THREADS)
@pytest.mark.parametrize(("target", "outcome"), [("torchax", "reported"), ("torch_xla", "kept")])
def test_threads_share_the_device_on_torch_xla_alone(code: str, target: str, outcome: str) -> None:
    source = f"{IMPORTS}{program()}{code}\n"
    result = run(source, target, entry=False)
    assert [d.outcome for d in constructs(result) if d.code == "DST005"] == [outcome]


@pytest.mark.parametrize(
    "code",
    [
        "threading.Thread(target=on_cpu, args=(1,)).start()",
        "threading.Timer(3.0, on_cpu, (1,)).start()",
        "_thread.start_new_thread(on_cpu, (1,))",
        "Parallel(prefer='threads')(delayed(on_cpu)(i) for i in range(4))",
        "threading.Thread(target=show, args=(model(x).cpu(),)).start()",
        "async def main():\n    return await asyncio.to_thread(read, 'a.txt')",
    ],
)
def test_threads_on_the_cpu_are_left_in_peace(code: str) -> None:
    result = run(f"{IMPORTS}{program()}{code}\n", entry=False)
    assert not [d for d in constructs(result) if d.code.startswith("DST")]
