"""Evidence: a name that looks like PyTorch's may keep code from a rewrite, and justifies none."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, constructs, migrated, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome

TORCH = "import torch\n"


def of_project(folder: Path, files: dict[str, str], name: str, target: str = "torchax") -> str:
    report = migrate_paths([write_tree(folder, files)], target)
    return next(f.result.source.decode() for f in report.files if f.path.name == name)


ELSEWHERE = [
    "session.cuda()\n",
    "x = build.cuda(non_blocking=True)\n",
    "if build.is_cuda:\n    run()\n",
    "y = buffer.pin_memory()\n",
    'translator = Translator(device="cuda")\n',
    'device = "cuda"\n',
    "y = card.to(0)\n",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("line", ELSEWHERE)
def test_a_program_without_pytorch_is_left(tmp_path: Path, line: str, target: str) -> None:
    files = {"noxfile.py": f"import nox\n{line}", "other.py": "import noxfile\n"}
    assert of_project(tmp_path, files, "noxfile.py", target) == files["noxfile.py"]


@pytest.mark.parametrize(
    "head, others",
    [
        ("from torch import nn\n", {}),
        ("import torch_geometric\n", {}),
        ("from transformers import AutoModel\n", {}),
        ("from model import Net\n", {"model.py": TORCH}),
        ("", {"train.py": "import torch\nimport use\n"}),
        ("", {"train.py": "import model\nimport use\n", "model.py": TORCH}),
        ("", {"scripts/train.py": "import torch\nfrom use import x\n"}),
    ],
)
def test_a_program_with_pytorch_is_one_by_any_file(
    tmp_path: Path, head: str, others: dict[str, str]
) -> None:
    (tmp_path / ".git").mkdir()
    files = {**others, "use.py": f"{head}x = make().cuda()\n"}
    assert '.to("jax")' in of_project(tmp_path, files, "use.py")


NOT_OF_TORCH = {
    "a module's function": "import mylib\nmylib.cuda()\n",
    "a version": 'session.cuda("12.1")\n',
    "an option of another's": "x = image.cuda(version=12)\n",
    "three arguments": "x = image.cuda(1, True, 3)\n",
    "a recording": "recorder.record_stream(camera)\n",
    "nothing recorded": "recorder.record_stream()\n",
    "locked pages": "pool.pin_memory()\n",
    "another's device": "x = torch.ones(2, device=accelerator.get_device())\n",
    "a loader of a library": "loader = mylib.Loader(data, pin_memory=True)\n",
    "a loader that is given": "def f(make):\n    return make(data, pin_memory=True)\n",
    "a rank of cards": "def f(card, rank):\n    return card.to(rank)\n",
    "a gpu by any name": "def f(gpu):\n    return torch.zeros(2, device=gpu)\n",
    "a device id": "device = torch.device(config.device_id)\n",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", NOT_OF_TORCH)
def test_a_name_alone_is_reported(what: str, target: str) -> None:
    source = TORCH + NOT_OF_TORCH[what]
    result = run(source, target)
    assert result.source.decode() == source
    assert [d.outcome for d in constructs(result)] == [Outcome.REPORTED]


@pytest.mark.parametrize("target", TARGETS)
def test_a_device_that_another_package_takes_is_reported(target: str) -> None:
    """CTranslate2's and a simulator's are CUDA's own; a name alone does not tell."""
    source = TORCH + (
        "import simulator\nfrom faster_whisper import WhisperModel\n"
        'model = WhisperModel("large", device="cuda")\n'
        'envs = simulator.make(sim_device="cuda:0" if gpu else "cpu")\n'
    )
    result = run(source, target)
    assert result.source.decode() == source
    found = [(d.outcome, d.message.partition(",")[0]) for d in constructs(result)]
    assert found == [
        (Outcome.REPORTED, "is given to faster_whisper"),
        (Outcome.REPORTED, "is given to simulator"),
    ]


def test_a_device_that_pytorch_takes_or_that_is_handed_on_is_the_targets(tmp_path: Path) -> None:
    lines = (
        "import torch, torchvision, functools, click\nfrom transformers import pipeline\n"
        "from model import Net\nfrom . import more\nimport model\n"
        'net = Net(device="cuda")\nnet = model.Net(device="cuda")\nnet = more.Net(device="cuda")\n'
        'p = pipeline(device="cuda")\nx = torch.ones(1, device="cuda")\n'
        'f = functools.partial(net, device="cuda")\nd = dict(device="cuda")\n'
        'c = click.Context(f, obj=dict(device="cuda"))\nnet.run(device="cuda")\n'
    )
    (tmp_path / ".git").mkdir()
    own = dict.fromkeys(("model.py", "more.py"), "class Net: pass\n")
    found = of_project(tmp_path, {"a.py": lines, "__init__.py": "", **own}, "a.py")
    assert '"cuda"' not in found


INDICES = {
    "a number": "rank = 1\ny = x.to(rank)\n",
    "get_rank": "import torch.distributed as dist\nrank = dist.get_rank()\ny = x.to(rank)\n",
    "a launcher's": 'import os\nrank = int(os.environ["LOCAL_RANK"])\ny = x.to(rank)\n',
    "two at once": "import os\nrank, n = int(os.environ['RANK']), 2\ny = x.to(rank)\n",
    "a device of a rank": "import torch.distributed as dist\n"
    "gpu = dist.get_rank() % torch.cuda.device_count()\ny = x.to(gpu)\n",
    "a function that gives it": "import os\ndef get_rank():\n"
    '    return int(os.environ.get("RANK", 0))\nrank = get_rank()\ny = x.to(rank)\n',
    "an annotation": "def f(x, gpu_id: int):\n    return x.to(gpu_id)\n",
    "a call": "def f(x, rank):\n    return x.to(rank)\nf(x, rank=0)\n",
    "calls of calls": "def g(x, gpu):\n    return x.to(gpu)\n"
    "def f(x, rank):\n    g(x, rank)\nf(x, 0)\n",
    "an object's": "class Trainer:\n    def __init__(self, net, gpu_id):\n"
    "        self.gpu_id = gpu_id\n    def step(self, x):\n        return x.to(self.gpu_id)\n"
    "Trainer(net, 0)\n",
    "another process's": "from torch.distributed import rpc\ndef run(x, rank):\n    x.to(rank)\n"
    "rpc.rpc_async('t', run, args=(x, 1))\n",
    "an option": "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--gpu', type=int)\nargs = parser.parse_args()\ny = x.to(args.gpu)\n",
    "a loop": "for gpu in range(8):\n    y = x.to(gpu)\n",
    "what is set": "def f(x, rank):\n    torch.cuda.set_device(rank)\n    return x.to(rank)\n",
}


@pytest.mark.parametrize("what", INDICES)
def test_where_an_index_comes_from_shows_it(what: str) -> None:
    text = migrated(TORCH + INDICES[what])
    assert 'x.to("jax")' in text.replace("'", '"')


def test_the_first_parameter_of_a_spawned_function_is_a_rank() -> None:
    source = (
        "import torch\nimport torch.multiprocessing as mp\n\n\ndef run(rank, size):\n"
        "    net = torch.nn.Linear(2, 2).to(rank)\n\n\nif __name__ == '__main__':\n"
        "    mp.spawn(run, args=(2,), nprocs=2)\n"
    )
    assert ".to('xla')" in migrated(source, "torch_xla")


def test_an_option_of_another_file_is_an_index(tmp_path: Path) -> None:
    options = (
        "import argparse\n\n\ndef parse():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--gpu', type=int)\n    return parser.parse_args()\n"
    )
    train = "import torch\nfrom options import parse\nargs = parse()\ny = x.to(args.gpu)\n"
    found = of_project(tmp_path, {"options.py": options, "train.py": train}, "train.py")
    assert 'x.to("jax")' in found


LOADERS = {
    "torch's": ("from torch.utils.data import DataLoader\n", "DataLoader(data)"),
    "by a star": ("from torch.utils.data import *\n", "DataLoader(data)"),
    "a library's": ("from torch_geometric.loader import NeighborLoader\n", "NeighborLoader(data)"),
    "a subclass": (
        "from torch.utils.data import DataLoader\n\n\nclass Endless(DataLoader):\n    pass\n\n\n",
        "Endless(data)",
    ),
    "its own class": (
        "from torch.utils.data import DataLoader\n\n\nclass Endless(DataLoader):\n"
        "    def __init__(self, data):\n",
        "        super().__init__(data)",
    ),
    "one of two": (
        "from torch.utils.data import DataLoader\n\n\nclass Endless(DataLoader):\n    pass\n\n\n"
        "make = DataLoader if short else Endless\n",
        "make(data)",
    ),
}


@pytest.mark.parametrize("what", LOADERS)
def test_a_loader_of_pytorch_pins_nothing(what: str) -> None:
    head, call = LOADERS[what]
    call = call if call[0] == " " else f"loader = {call}"
    before = f"{TORCH}{head}{call[:-1]}, pin_memory=True)\n"
    assert migrated(before) == f"{TORCH}{head}{call}\n"


def test_a_function_of_the_program_goes_on_being_told(tmp_path: Path) -> None:
    """It may have no default; and where it hands the argument on, that is rewritten."""
    files = {
        "data.py": "from torch.utils.data import DataLoader\n\n\ndef loader(data, pin_memory):\n"
        "    return DataLoader(data, pin_memory=pin_memory)\n\n\ndef other(data, **options):\n"
        "    return DataLoader(data, **options)\n",
        "use.py": "from data import loader, other\n\na = loader(x, pin_memory=True)\n"
        "b = other(x, pin_memory=True)\n",
    }
    found = of_project(tmp_path, files, "use.py")
    assert "loader(x, pin_memory=True)" in found and "other(x, pin_memory=False)" in found
    assert "return DataLoader(data)\n" in of_project(tmp_path, files, "data.py")


_WRAPPED = (
    "from torch.utils.data import DataLoader\n\n\nclass Loader:\n"
    "    def __init__(self, data, **options):\n        self.data = {made}\n\n\n"
    "loader = Loader(data, pin_memory={pinned})\n"
)


def test_a_class_that_hands_its_keywords_to_a_loader_is_told_false() -> None:
    made = "DataLoader(data, **options)"
    before = TORCH + _WRAPPED.format(made=made, pinned=True)
    assert migrated(before) == TORCH + _WRAPPED.format(made=made, pinned=False)


@pytest.mark.parametrize("made", ["library.load(data, **options)", "DataLoader(data), options"])
def test_a_class_that_does_something_else_with_its_keywords_is_reported(made: str) -> None:
    before = TORCH + _WRAPPED.format(made=made, pinned=True)
    assert migrated(before) == before
