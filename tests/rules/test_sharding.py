"""Models that are divided over the devices: which layers are found, what is written, what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Severity
from migrator.errors import UsageError
from tests.helpers import TARGETS, migrated, run

ATTENTION = """class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.heads = nn.Linear(dim, dim), 8
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
"""


def table(classes: str, model: str = "Net(64)", shard: str = "tp") -> dict[str, str]:
    """What is written for the model of a program."""
    head = "import torch\nimport torch.nn as nn\n\n"
    text = migrated(f"{head}{classes}\n\nmodel = {model}.cuda()\n", shard=shard)
    found: dict[str, object] = {}
    start = text.find("SHARDING = {")
    if start >= 0:
        exec(text[start : text.index("\n}", start) + 2], found)
        assert "tpu_runtime.shard(" in text and "SHARDING)" in text
    return found.get("SHARDING", {})  # type: ignore[return-value]


def net(blocks: str) -> str:
    return (
        "class Net(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
        f"        {blocks}\n        self.head = nn.Linear(dim, 10)\n"
    )


QKV = dict.fromkeys(("q", "k", "v"), "column") | {"proj": "replicated"}


@pytest.mark.parametrize(
    ("blocks", "prefix"),
    [
        ("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))", "blocks.*"),
        ("self.blocks = nn.ModuleList([Attention(dim) for _ in range(2)])", "blocks.*"),
        ("self.blocks = nn.Sequential(*[Attention(dim) for _ in range(2)])", "blocks.*"),
        ("self.blocks = nn.ModuleList()\n        for _ in range(2):\n"
         "            self.blocks.append(Attention(dim))", "blocks.*"),
        ("layers = []\n        for _ in range(2):\n            layers.append(Attention(dim))\n"
         "        self.blocks = nn.Sequential(*layers)", "blocks.*"),
        ("self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(dim), Attention(dim)) "
         "for _ in range(2)])", "blocks.*.1"),
        ("self.blocks = nn.ModuleList(Attention(dim) if dim else Attention(1) for _ in range(2))",
         "blocks.*"),
        ("self.parts = nn.ModuleDict(dict(h=nn.ModuleList([Attention(1) for _ in 'ab'])))",
         "parts.h.*"),
        ("self.parts = nn.ModuleDict({'h': nn.ModuleList([Attention(1) for _ in 'ab'])})",
         "parts.h.*"),
    ],
)  # fmt: skip
def test_layers_are_found_through_module_lists(blocks: str, prefix: str) -> None:
    expected = {f"{prefix}.{name}": kind for name, kind in QKV.items()}
    assert table(ATTENTION + net(blocks)) == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # what public models call them
        ("fc1 fc2", {"fc1": "column", "fc2": "replicated"}),
        ("gate_proj up_proj down_proj",
         {"gate_proj": "column", "up_proj": "column", "down_proj": "replicated"}),
        ("w1 w2 w3", {"w1": "column", "w2": "replicated", "w3": "column"}),
        ("c_fc c_proj", {"c_fc": "column", "c_proj": "replicated"}),
        ("linear1 linear2", {"linear1": "column", "linear2": "replicated"}),
        ("q_proj k_proj v_proj o_proj", {"q_proj": "column", "k_proj": "column",
                                         "v_proj": "column", "o_proj": "replicated"}),
        ("to_q to_k to_v to_out", {"to_q": "column", "to_k": "column", "to_v": "column",
                                   "to_out": "replicated"}),
        ("wq wk wv wo", {"wq": "column", "wk": "column", "wv": "column", "wo": "replicated"}),
        ("img_attn_q img_attn_k img_attn_v img_attn_proj",
         {"img_attn_q": "column", "img_attn_k": "column", "img_attn_v": "column",
          "img_attn_proj": "replicated"}),
        # a part that is not known, or has no other side
        ("qkv proj", {}),
        ("q k v", {}),
        ("fc1", {}),
        ("embed head gate", {}),
    ],
)  # fmt: skip
def test_a_layers_part_is_known_by_its_name_and_those_beside_it(
    layers: str, expected: dict[str, str]
) -> None:
    made = "".join(f"        self.{name} = nn.Linear(dim, dim)\n" for name in layers.split())
    block = f"class Block(nn.Module):\n    def __init__(self, dim):\n{made}\n"
    blocks = net("self.blocks = nn.ModuleList(Block(dim) for _ in range(2))")
    assert table(block + blocks) == {f"blocks.*.{k}": v for k, v in expected.items()}


def test_a_sequence_of_two_layers_is_an_mlp() -> None:
    block = (
        "class Block(nn.Module):\n    def __init__(self, dim):\n"
        "        self.mlp = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, dim))\n"
    )
    blocks = net("self.blocks = nn.ModuleList(Block(dim) for _ in range(2))")
    assert table(block + blocks, shard="tp-row") == {
        "blocks.*.mlp.0": "column",
        "blocks.*.mlp.2": "row",
    }


def test_layers_of_a_base_class_and_of_another_file(tmp_path: Path) -> None:
    model = (
        f"import torch.nn as nn\n\n{ATTENTION}\n"
        "class Block(Attention):\n    def __init__(self, dim):\n        super().__init__(dim)\n"
        "        self.fc1 = nn.Linear(dim, 4)\n        self.fc2 = nn.Linear(4, dim)\n\n"
        f"{net('self.blocks = nn.ModuleList(Block(dim) for _ in range(2))')}"
    )
    script = (
        "import torch\nfrom model import Net\n\n\ndef load(device):\n    net = Net(64)\n"
        "    net = net.eval()\n    return net.to(device)\n\n\n"
        'if __name__ == "__main__":\n    load(torch.device("cuda"))\n'
    )
    main = 'import sample\n\nif __name__ == "__main__":\n    sample.load("cuda")\n'
    for target, setup in (("torchax", "setup()"), ("torch_xla", "setup(spmd=True)")):
        folder = tmp_path / target
        folder.mkdir()
        for name, text in (("model", model), ("sample", script), ("main", main)):
            (folder / f"{name}.py").write_text(text)
        for _ in range(2):  # a second run finds nothing to do
            report = migrate_paths(
                [folder], target=target, config=Config(shard="tp"), write=True, allow_dirty=True
            )
        assert not report.changed
        text = (folder / "sample.py").read_text()
        assert "return tpu_runtime.shard(net, SHARDING, device)" in text
        assert '    "blocks.*.v": "column",\n    "blocks.*.proj": "replicated",\n' in text
        assert '    "blocks.*.fc2": "replicated",\n}\n' in text
        for file in ("sample.py", "main.py"):
            assert f"tpu_runtime.{setup}" in (folder / file).read_text()


@pytest.mark.parametrize(
    "model",
    ["Net.from_pretrained('x')", "make()", "load('x', make()).half()", "Net(1).to(torch.bfloat16)"],
)
def test_a_model_is_followed_through_functions(model: str) -> None:
    functions = (
        "def make():\n    net = Net(64)\n    net = restore(path, net)\n    return net.eval()\n\n\n"
        "def load(path, net):\n    return make()\n"
    )
    classes = ATTENTION + net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    assert len(table(f"{classes}\n\n{functions}", model)) == 4


@pytest.mark.parametrize("method", ["to", "cuda"])
def test_a_class_that_moves_in_its_own_way_is_not_divided(method: str) -> None:
    classes = ATTENTION + net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    assert len(table(classes)) == 4
    assert not table(f"{classes}\n    def {method}(self, *args):\n        return self\n")
    assert not table(classes.replace("class Net(nn.Module)", "class Net(Pipeline)"))


GATED = (
    "class MLP(nn.Module):\n    def __init__(self, dim):\n"
    "        self.fc1, self.fc2 = nn.Linear(dim, 4), nn.Linear(4, dim)\n\n\n"
    "class Gated(nn.Module):\n    def __init__(self, dim):\n        self.w1 = nn.Linear(dim, 4)\n"
    "        self.w2 = nn.Linear(4, dim)\n\n\n"
)
BLOCKS = net("self.blocks = nn.ModuleList(Block(dim) for _ in range(2))")


@pytest.mark.parametrize(
    ("block", "layers"),
    [
        # which one it is turns out when the program runs
        ("        self.mlp = Gated(dim) if dim else MLP(dim)\n", ""),
        ("        if dim:\n            self.mlp = Gated(dim)\n        else:\n"
         "            self.mlp = MLP(dim)\n", ""),
        ("        if dim:\n            self.mlp = MLP(dim)\n", ""),
        ("        self.mlp = nn.Sequential(*first, nn.Linear(4, 8), nn.Linear(8, 4))\n", ""),
        # all the same
        ("        self.mlp = MLP(dim) if dim else MLP(1)\n", "mlp.fc1 mlp.fc2"),
        ("        if dim:\n            self.mlp = MLP(dim)\n        else:\n"
         "            self.mlp = MLP(1)\n", "mlp.fc1 mlp.fc2"),
    ],
)  # fmt: skip
def test_a_layer_that_may_not_be_there_is_not_in_the_table(block: str, layers: str) -> None:
    head = "class Block(nn.Module):\n    def __init__(self, dim):\n"
    found = table(f"{GATED}{head}{block}\n{BLOCKS}")
    assert list(found) == [f"blocks.*.{name}" for name in layers.split()]


def test_a_derived_class_replaces_what_its_base_has() -> None:
    base = "class Base(nn.Module):\n    def __init__(self, dim):\n        self.mlp = MLP(dim)\n\n"
    derived = (
        "class Block(Base):\n    def __init__(self, dim):\n        super().__init__(dim)\n"
        "        self.mlp = Gated(dim)\n\n"
    )
    assert list(table(GATED + base + derived + BLOCKS)) == ["blocks.*.mlp.w1", "blocks.*.mlp.w2"]


def test_names_of_tables(tmp_path: Path) -> None:
    """Two models of one name have two tables, and a name of the source's own stays."""
    model = (
        f"import torch.nn as nn\n\n{ATTENTION}\n"
        f"{net('self.{} = nn.ModuleList(Attention(dim) for _ in range(2))')}"
    )
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(model.replace("{}", f"blocks_{name}"))
    script = (
        "import torch\nimport a, b\n\nSHARDING = 'full'\nfirst = a.Net(1).cuda()\n"
        "second = b.Net(1).cuda()  # comment\nthird = a.Net(2).cuda()  # tpu-migrate: ignore\n"
    )
    (tmp_path / "main.py").write_text(script)
    for _ in range(2):
        migrate_paths([tmp_path], config=Config(shard="tp"), write=True, allow_dirty=True)
        text = (tmp_path / "main.py").read_text()
        assert text.count("SHARDING = {") == 1 and text.count("NET_SHARDING_OF_WEIGHTS = {") == 1
    assert "first = tpu_runtime.shard(a.Net(1), NET_SHARDING)" in text
    assert "third = a.Net(2).cuda()" in text and "SHARDING = 'full'" in text
    tables: dict[str, dict[str, str]] = {}
    for part in text.split("\n\n"):
        if "SHARDING" in part and "{\n" in part:
            exec(part, tables)
    assert all("blocks_a" in name for name in tables["NET_SHARDING"])
    assert all("blocks_b" in name for name in tables["NET_SHARDING_OF_WEIGHTS"])


def test_a_model_that_stays_by_a_comment_has_no_table() -> None:
    classes = ATTENTION + net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    source = f"import torch\nimport torch.nn as nn\n\n{classes}\n\nmodel = Net(1).cuda()"
    assert "SHARDING" not in migrated(f"{source}  # tpu-migrate: ignore\n", shard="tp")


def test_a_table_stands_above_its_use() -> None:
    classes = ATTENTION + net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    source = (
        f"import torch\nimport torch.nn as nn\n\n{classes}\n\n"
        "try:\n    model = Net(1).cuda()\nexcept RuntimeError:\n    raise\nimport math\n"
    )
    text = migrated(source, shard="tp")
    assert text.index("SHARDING = {") < text.index("tpu_runtime.shard(")


def test_what_is_not_divided_says_why() -> None:
    classes = ATTENTION + net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    head = "import torch\nimport torch.nn as nn\n"
    for source, advice in (
        ("def move(model: nn.Module):\n    model.cuda()\n", "class can't be told"),
        ("model = Net(1)\nmodel = model.to('cuda', torch.float16)\n", "by calls of their own"),
        ("model = Net(1) if flag else Attention(1)\nmodel.cuda()\n", "class can't be told"),
        ("model = Net(1)\nmodel = Wrap(model)\nmodel.cuda()\n", "class can't be told"),
        ("model = nn.DataParallel(Net(1))\nmodel.cuda()\n", "class can't be told"),
    ):
        result = run(f"{head}{classes}{source}", shard="tp")
        assert "shard(" not in result.source.decode()
        advices = [d.message for d in result.diagnostics if d.severity is Severity.ADVICE]
        assert any(advice in message for message in advices)


def test_layers_whose_part_is_not_known_are_named() -> None:
    extra = ATTENTION + "        self.gate = nn.Linear(dim, dim)\n"
    blocks = net("self.blocks = nn.ModuleList(Attention(dim) for _ in range(2))")
    source = f"import torch\nimport torch.nn as nn\n{extra}{blocks}\nmodel = Net(64).cuda()\n"
    messages = [d.message for d in run(source, shard="tp").diagnostics if d.code == "SHD001"]
    assert "whole on each device, because their role is not known: blocks.*.gate" in messages


@pytest.mark.parametrize("target", TARGETS)
def test_without_the_option_a_model_goes_to_the_device_whole(target: str) -> None:
    source = f"import torch\nimport torch.nn as nn\n{ATTENTION}\nmodel = Attention(64).cuda()\n"
    assert "shard" not in migrated(source, target)


def test_a_portable_program_has_no_divided_models(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="--shard tp: torchax --portable has no divided models"):
        migrate_paths([tmp_path], target="torchax", config=Config(shard="tp", portable=True))
