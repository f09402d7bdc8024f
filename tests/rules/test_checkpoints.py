"""torch.load: what only goes into load_state_dict is read on the CPU, wherever that is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, migrated, read_tree, reported_codes, run, write_tree

from migrator.diagnostics import Outcome

CPU = 'torch.load(path, map_location="cpu")'
TO_THE_CPU = {
    "a function": """
        def load(path):
            return torch.load(path)
        ck = load(path)
        model.load_state_dict(ck["state"])
    """,
    "entries by name": """
        ck = torch.load(path)
        state = ck["model"] if "model" in ck else ck.get("state_dict", ck)
        model.load_state_dict(state, strict=False)
        if ck.get("ema") is not None:
            ema.load_state_dict(ck["ema"])
    """,
    "a filtered copy": """
        pretrained = torch.load(path)
        own = model.state_dict()
        pretrained = {k: v for k, v in pretrained.items()
                      if k in own and v.shape == own[k].shape}
        own.update(pretrained)
        model.load_state_dict(own)
    """,
    "keys without a prefix": """
        state = torch.load(path)["state_dict"]
        new = OrderedDict()
        for key, value in state.items():
            new[key.replace("module.", "")] = value.float()
        for key in list(new.keys()):
            if key.startswith("head"):
                del new[key]
        model.load_state_dict(new)
    """,
    "unpacked": """
        model_state, optimizer_state = torch.load(path)
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
    """,
    "numbers": """
        best = 0.0
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        start, best = ck["start"] + 1, ck["best"]
        print(f"epoch {start}, best {best:.3f}")
        for epoch in range(start, 10):
            acc = evaluate(model)
            best = max(acc, best)
    """,
    "an attribute of args": """
        ck = torch.load(path)
        args.start_epoch = ck["next"]
        model.load_state_dict(ck["model"])
        for epoch in range(args.start_epoch, 9):
            pass
    """,
    "methods and attributes": """
        class Trainer:
            def __init__(self, path):
                self.snapshot = self.read(path)
                self.model.load_state_dict(self.snapshot["model"])
                self.restore(self.snapshot["optimizer"])
            def read(self, path):
                return torch.load(path)
            def restore(self, state):
                self.optimizer.load_state_dict(state)
    """,
    "parameters": """
        def fill(model, weights):
            for name, parameter in model.named_parameters():
                if name in weights:
                    parameter.data.copy_(weights[name])
        fill(model, torch.load(path))
    """,
    "moved by itself": """
        x = torch.load(path).cuda()
        y = x + 1
    """,
}
LEFT = {
    "arithmetic with what may be tensors": """
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        x = (x - ck["mean"]) / ck["std"]
    """,
    "arithmetic with what is called as a number is": """
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        x = x * ck["lr"]
    """,
    "given to what is not known": """
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        restore(ck["ema"])
    """,
    "returned to nobody in sight": """
        def load(path):
            return torch.load(path)
    """,
    "one of two calls computes": """
        def load(path):
            return torch.load(path)
        model.load_state_dict(load(path))
        y = model(load(path))
    """,
    "a decorated function": """
        @cached
        def load(path):
            return torch.load(path)
        model.load_state_dict(load(path))
    """,
    "an attribute that computes elsewhere": """
        class A:
            def __init__(self, path):
                self.table = torch.load(path)
                self.net.load_state_dict(self.table)
            def forward(self, x):
                return x @ self.table
    """,
    "its device is asked": """
        ck = torch.load(path)
        model.load_state_dict(ck)
        x = torch.ones(2, device=ck["w"].device)
    """,
    "a list of the caller's": """
        def read(path, into):
            into["model"] = torch.load(path)
    """,
    "an index": """
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        x = data[ck["order"]]
    """,
    "a function of no known result": """
        load = lambda path: torch.load(path)
        model.load_state_dict(load(path))
    """,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TO_THE_CPU)
def test_state_is_read_on_the_cpu(name: str, target: str) -> None:
    source = "import torch\nfrom collections import OrderedDict\n" + textwrap.dedent(
        TO_THE_CPU[name]
    )
    text = run(source, target).source.decode()
    assert CPU in text
    assert "tpu_runtime.load" not in text


@pytest.mark.parametrize("name", LEFT)
def test_what_may_compute_is_loaded_to_where_it_was(name: str) -> None:
    text = run("import torch\n" + textwrap.dedent(LEFT[name])).source.decode()
    assert CPU not in text
    assert "tpu_runtime.load" in text


FILES = {
    "lib/__init__.py": "",
    "lib/io.py": "import torch\n\n\ndef load(path):\n    return torch.load(path)\n",
    "train.py": "import torch\nfrom lib import io\nfrom lib.net import restore\n\n"
    "model = torch.nn.Linear(2, 2).cuda()\nck = io.load('a.pt')\nrestore(model, ck['model'])\n",
    "lib/net.py": "def restore(model, weights):\n    model.load_state_dict(weights)\n",
}


def test_through_the_files_of_a_program(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", FILES)
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    assert CPU in read_tree(root)["lib/io.py"].decode()


def test_a_use_in_another_file_counts(tmp_path: Path) -> None:
    other = "from lib.io import load\n\nprint(load('b.pt') @ load('c.pt'))\n"
    root = write_tree(tmp_path / "p", {**FILES, "other.py": other})
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    assert CPU not in read_tree(root)["lib/io.py"].decode()


PARAMETER = {
    "lib.py": "import torch\n\n\ndef tables(path, device='cpu'):\n"
    "    return torch.load(path, map_location=device).sum()\n",
    "train.py": "import torch\nfrom lib import tables\n\n"
    "device = torch.device('cuda')\nprint(tables('a.pt'@GIVEN@) * torch.ones(2, device=device))\n",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("given", "changes"),
    [("", False), (", 'cpu'", False), (", device=device", True), (", device", True),
     (", **options", True)],
)  # fmt: skip
def test_a_parameter_is_what_calls_give(
    given: str, changes: bool, target: str, tmp_path: Path
) -> None:
    """Its default "cpu" says nothing of a file whose tensors another file puts on the device."""
    files = {name: text.replace("@GIVEN@", given) for name, text in PARAMETER.items()}
    root = write_tree(tmp_path / "p", files)
    cli(root, "--target", target, "--allow-dirty", cwd=root)
    found = read_tree(root)["lib.py"].decode()
    assert (found != files["lib.py"]) is changes
    assert ("tpu_runtime.load(path, map_location=device)" in found) is changes


def test_what_programs_in_a_folder_beside_do_counts(tmp_path: Path) -> None:
    """`scripts/` beside a package, run as `python -m scripts.train`."""
    given = PARAMETER["train.py"].replace("from lib", "from lib.tables")
    state = "import torch\n\n\ndef load(path):\n    return torch.load(path)\n"
    computes = (
        "from lib.state import load\nimport torch\n\nx = load('x.pt') @ torch.ones(2).cuda()\n"
    )
    files = {
        "lib/__init__.py": "",
        "lib/tables.py": PARAMETER["lib.py"],
        "lib/state.py": state,
        "lib/restore.py": "from lib.state import load\n\n\ndef restore(model):\n"
        "    model.load_state_dict(load('net.pt'))\n",
        "scripts/train.py": given.replace("@GIVEN@", ", device"),
        "scripts/compute.py": computes,
    }
    root = write_tree(tmp_path / "p", files)
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    found = read_tree(root)
    assert b"tpu_runtime.load(path, map_location=device)" in found["lib/tables.py"]
    assert b"return tpu_runtime.load(path)\n" in found["lib/state.py"]


# ---- functions that place storages -----------------------------------------------------------

# A storage has no method that moves it to a TPU: `storage.to(...)` fails as soon as a file is read.
PLACING = {
    "a function": """
        def place(storage, loc):
            return storage.cuda()
        LOAD(place)
    """,
    "with a condition": """
        def place(storage, location):
            if location.startswith("cuda"):
                return storage.cuda(0)
            return storage
        LOAD(place)
    """,
    "under other names": """
        def onto(data, tag):
            return data.cuda()
        LOAD(onto)
    """,
    "a variable": """
        place = lambda s, where: s.cuda(0)
        LOAD(place)
    """,
    "a method": """
        class Reader:
            def place(self, s, where):
                return s.cuda(self.gpu)
            def read(self):
                return LOAD(self.place)
    """,
    "a static method": """
        class Reader:
            @staticmethod
            def place(s, where):
                return s.cuda(0)
            def read(self):
                return LOAD(Reader.place)
    """,
    "a partial": """
        import functools
        def place(gpu, s, where):
            return s.cuda(gpu)
        LOAD(functools.partial(place, 0))
    """,
    "a partial by name": """
        from functools import partial
        def place(s, where, gpu):
            return s.cuda(gpu)
        onto_gpu = partial(place, gpu=0)
        LOAD(onto_gpu)
    """,
    "made by a function": """
        def on(gpu):
            def place(s, where):
                return s.cuda(gpu)
            return place
        LOAD(on(0))
    """,
    "the default of a parameter": """
        def place(s, where):
            return s.cuda()
        def read(fn=place):
            return LOAD(fn)
    """,
    "one of two": """
        def place(s, where):
            return s.cuda()
        LOAD(place if on_gpu else None)
    """,
    "a function behind a function": """
        def move(s):
            return s.cuda()
        def place(s, where):
            return move(s)
        LOAD(place)
    """,
    "an annotated storage": """
        def move(s: torch.UntypedStorage):
            return s.cuda()
        LOAD(lambda s, where: move(s))
    """,
    "a tensor's storage": """
        s = x.untyped_storage()
        s.cuda()
        x.storage().cuda()
    """,
}
LOADS = {
    "values": "print(torch.load(path, map_location={}).sum())",
    "state": "net.load_state_dict(torch.load(path, map_location={}))",
}


def placing(kind: str, load: str) -> str:
    before, _, after = LOADS[load].partition("{}")
    text = textwrap.dedent(PLACING[kind])
    text = re.sub(r"LOAD\(((?:[^()]|\([^()]*\))*)\)", lambda m: f"{before}{m[1]}{after}", text)
    return f"import torch\n{text}"


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", PLACING)
def test_a_storage_is_not_moved_as_a_tensor_is(kind: str, load: str, target: str) -> None:
    result = run(placing(kind, load), target)
    after = result.source.decode()
    assert ".to(" not in after
    moves = [d for d in constructs(result) if d.construct.endswith(".cuda") and d.code == "MOV001"]
    assert moves and all(d.outcome is not Outcome.REWRITTEN for d in moves)
    if load == "state" and "torch.load" in after:
        assert 'map_location="cpu"' in after


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
def test_the_device_in_a_file_stays_that_of_a_gpu(target: str) -> None:
    test = "    if {}:\n        return storage\n"
    for asked in ('device == "cuda:0"', 'device.startswith("cuda")', '"cuda:0" == device'):
        place = f"def place(storage, device):\n{test.format(asked)}"
        result = run(
            f"import torch\n{place}print(torch.load(p, map_location=place).sum())\n", target
        )
        assert asked in result.source.decode()
        assert "DEV002" not in reported_codes(result)


def test_a_function_that_places_storages_in_another_file(tmp_path: Path) -> None:
    main = "import torch\nfrom places import onto\n\nx = torch.load('x', map_location=onto) + 1\n"
    places = "import torch\n\n\ndef onto(data, tag):\n    return data.cuda()\n"
    write_tree(tmp_path / "p", {"places.py": places, "main.py": main})
    done = cli("p", "--target", "torchax", "-o", "out", cwd=tmp_path)
    assert b"places.py:5" in done.stdout
    assert b"data.cuda()" in (tmp_path / "out/places.py").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "place",
    [
        "at = None if torch.cuda.is_available() else 'cpu'\n",
        "at = None\nif not torch.cuda.is_available():\n    at = 'cpu'\n",
        "if torch.cuda.is_available():\n    at = None\nelse:\n    at = torch.device('cpu')\n",
        "at = (lambda s, _: s.cuda()) if torch.cuda.is_available() else 'cpu'\n",
    ],
)
def test_a_place_that_is_the_cpu_only_without_a_gpu(place: str, target: str) -> None:
    """On a TPU it becomes None, where torch.load itself can't read what a GPU wrote."""
    state = f"import torch\n{place}model.load_state_dict(torch.load('a.pt', map_location=at))\n"
    if "lambda" not in place:
        assert "map_location='cpu'))" in migrated(state, target).replace('"', "'")
    other = f"import torch\n{place}x = torch.load('a.pt', map_location=at) @ y\n"
    assert "x = tpu_runtime.load('a.pt', map_location=at) @ y\n" in migrated(other, target)
    alone = other.replace(place, "at = 'cpu' if small else torch.device('cpu')\n")
    assert "torch.load('a.pt', map_location=at)" in migrated(alone, target)
    assert "tpu_runtime.load" not in migrated(alone, target)
