"""torch.load: what only goes into load_state_dict is read on the CPU, wherever that is."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from helpers import TARGETS, cli, read_tree, run, write_tree

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
