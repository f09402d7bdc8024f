"""Models that are divided over devices give the numbers of the whole model, and their gradients."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from target import TARGET, WORD

from migrator import migrate_paths
from migrator.config import Config
from tests.runtime.several_devices import PROGRAMS, execute

DEVICES = {
    "torchax": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count={}"},
    "torch_xla": {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "{}"},
}[TARGET]
SETUP = {"torchax": "", "torch_xla": "spmd=True"}[TARGET]
STAND_IN = Path(__file__).parents[2] / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"


def on_devices(count: int, script: Path, *arguments: object) -> str:
    return execute(script, *arguments, **{k: v.format(count) for k, v in DEVICES.items()})


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    path = tmp_path_factory.mktemp("golden") / "golden.pt"
    execute(STAND_IN, PROGRAMS / "divided_model.py", path)
    found: dict[str, torch.Tensor] = torch.load(path)
    return found


def migrated(folder: Path, shard: str) -> Path:
    (folder / "gpu").mkdir()
    (folder / "gpu" / "program.py").write_text((PROGRAMS / "divided_model.py").read_text())
    config = Config(shard=shard, runtime="copy")
    migrate_paths([folder / "gpu"], target=TARGET, config=config, output=folder / "tpu")
    return folder / "tpu" / "program.py"


def beside_the_runtime(folder: Path, text: str) -> Path:
    """A script that uses the runtime by itself."""
    (folder / "a.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    config = Config(runtime="copy")
    migrate_paths([folder / "a.py"], target=TARGET, output=folder / "out", config=config)
    script = folder / "out" / "script.py"
    script.write_text(("import torch_xla\n" if TARGET == "torch_xla" else "") + text)
    return script


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest one, of values about 1 and gradients about 10."""
    assert found.keys() == expected.keys()
    return max((found[k] - v).abs().max().item() for k, v in expected.items())


@pytest.mark.parametrize(
    ("shard", "count"),
    [
        ("tp-row", 8),
        pytest.param("tp", 8, marks=pytest.mark.thorough),
        pytest.param("tp", 1, marks=pytest.mark.thorough),
    ],
)
def test_results_and_gradients_are_those_of_the_whole_model(
    shard: str, count: int, golden: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    script = migrated(tmp_path, shard)
    printed = on_devices(count, script, tmp_path / "here.pt")
    assert difference(torch.load(tmp_path / "here.pt"), golden) < 2e-5
    kind = "replicated" if shard == "tp" else "row"
    divided = f"Net on 8 devices: 8 layers column, 4 layers {kind}" in printed
    assert divided is (count > 1)


CHECK = """
import torch
import torch.nn as nn
import tpu_runtime

tpu_runtime.setup({setup})
model = nn.ModuleDict({{"a": nn.Linear(16, 12), "b": nn.Linear(12, 16, bias=False)}})
for table in (
    {{"a": "column"}}, {{"b": "row", "c": "column"}}, {{"*": "columns"}}, {{"b": "column"}},
):
    try:
        tpu_runtime.shard(model, table)
    except ValueError as error:
        print(error)
parts = {parts}
print("weight", parts(model.b.weight), parts(model.a.weight))
"""
PARTS = {
    "torchax": "lambda x: x._elem.addressable_shards[0].data.shape",
    "torch_xla": "lambda x: torch_xla._XLAC._get_xla_sharding_spec(x)",
}


def test_a_table_is_held_against_the_model(tmp_path: Path) -> None:
    script = beside_the_runtime(tmp_path, CHECK.format(setup=SETUP, parts=PARTS[TARGET]))
    lines = [x for x in on_devices(8, script).splitlines() if x.startswith(("sharding", "weight"))]
    assert lines[:3] == [
        'sharding rule "a": "column": a.weight of shape (12, 16) cannot be divided over 8 devices '
        "along dimension 0: make it replicated",
        'sharding rule "b": "row": b.weight of shape (16, 12) cannot be divided over 8 devices '
        "along dimension 1: make it replicated",
        'sharding rule "*": "columns": a layer is column, row or replicated',
    ]
    expected = {
        "torchax": "weight (2, 12) (12, 16)",
        "torch_xla": "weight {devices=[8,1]0,1,2,3,4,5,6,7} ",
    }
    assert lines[3] == expected[TARGET]


def test_a_rule_that_matches_nothing_names_what_it_may_mean(tmp_path: Path) -> None:
    script = migrated(tmp_path, "tp")
    script.write_text(script.read_text().replace('"blocks.*.q"', '"block.*.q"'))
    try:
        printed = on_devices(8, script, tmp_path / "here.pt")
    except AssertionError as error:
        printed = str(error)
    expected = (
        'sharding rule "block.*.q": "column" matches no layer of Net: did you mean "blocks.*.q"?'
    )
    assert f"ValueError: {expected}" in printed


@pytest.mark.parametrize(
    ("shard", "kind"),
    [pytest.param("tp", "all-gather", marks=pytest.mark.thorough), ("tp-row", "all-reduce")],
)
def test_devices_exchange_what_the_layers_behind_need_and_nothing_else(
    shard: str, kind: str, tmp_path: Path
) -> None:
    """The first forward pass as XLA has partitioned it: two exchanges for each of two blocks."""
    script, dump = migrated(tmp_path, shard), tmp_path / "dump"
    variables = {name: value.format(8) for name, value in DEVICES.items()}
    flags = f"{variables.get('XLA_FLAGS', '')} --xla_dump_to={dump} --xla_dump_hlo_as_text"
    execute(script, tmp_path / "here.pt", **(variables | {"XLA_FLAGS": flags}))
    name = {"torchax": "jit_", "torch_xla": "SyncTensorsGraph"}[TARGET]
    texts = sorted(dump.glob(f"*{name}*after_optimizations.txt"))
    exchange = re.compile(r"(all-\w+|reduce-scatter|collective-\w+)\(")
    found = [exchange.findall(text.read_text()) for text in texts]
    assert [kind] * 4 in found  # beside programs of training


PRODUCTS = """
import torch
import torch.nn.functional as F
import tpu_runtime
from tpu_runtime.distributed import mesh

tpu_runtime.setup({setup})
mesh.start(mesh.MODEL)
attend = F.scaled_dot_product_attention
torch.manual_seed(0)
x, y = torch.randn(2, 8, 6, 5), torch.randn(2, 8, 5, 7)
mask = torch.rand(2, 1, 6, 6) > 0.4
mask[0, 0, 2] = False  # a query that may see no key
cases = {{
    "matmul": lambda x, y, m: x @ y,
    "keywords": lambda x, y, m: torch.matmul(x, other=y),
    "broadcast": lambda x, y, m: torch.matmul(x, y[0]),
    "masked": lambda x, y, m: attend(x, x, value=x, attn_mask=m),
    "bias": lambda x, y, m: attend(x, x, x, m.float()),
    "causal": lambda x, y, m: attend(x, x, x, is_causal=True, scale=0.3),
    "groups": lambda x, y, m: attend(x, x[:, :4], x[:, :4], enable_gqa=True),
}}
here = torch.empty(0, device="{device}").device
moved = [t.to(here) for t in (x, y, mask)]
found = {{name: case(*moved).cpu() for name, case in cases.items()}}
for name, case in cases.items():
    print("error", name, (found[name] - case(x, y, mask)).abs().max().item())
"""


def test_products_of_heads_are_those_of_torch(tmp_path: Path) -> None:
    script = beside_the_runtime(tmp_path, PRODUCTS.format(setup=SETUP, device=WORD))
    lines = [x for x in on_devices(8, script).splitlines() if x.startswith("error")]
    assert len(lines) == 7
    assert all(float(line.split()[2]) < 1e-5 for line in lines), lines
