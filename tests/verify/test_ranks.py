"""How a script with ranks is started, and how what they computed becomes one recording."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import parse_args

from migrator.verify.safetensors_files import read_header
from migrator.verify.script_ranks import RankRecording, StartedRanks, find_ranks, merged

JOIN = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import torch\nprint(torch.ones(3).cuda())\n", None),
        ("import torch\nmodel = torch.nn.DataParallel(model)\n", None),
        (JOIN, StartedRanks(2, launched=True)),
        (
            JOIN + "import torch.multiprocessing as mp\nmp.spawn(f)\n",
            StartedRanks(2, launched=False),
        ),
        (JOIN + "from torch.multiprocessing import Process as P\nP(target=f)\n",
         StartedRanks(2, launched=False)),
        (JOIN + "import multiprocessing as mp\nmp.Process(target=backup)\n"
         "if 'WORLD_SIZE' in os.environ:\n    pass\n", StartedRanks(2, launched=True)),
        (JOIN + "import os\nimport multiprocessing as mp\nmp.Process(target=train)\n"
         "def train(rank):\n    os.environ['RANK'] = str(rank)\n", StartedRanks(2, launched=False)),
        ("import engine\n", StartedRanks(2, launched=True)),
        ("from timm.utils import init_distributed_device\ninit_distributed_device(args)\n",
         StartedRanks(2, launched=True)),
        ("from accelerate import Accelerator\naccelerator = Accelerator()\n",
         StartedRanks(2, launched=True)),
        ("import transformers\nclass Own(transformers.Trainer):\n    pass\nOwn().train()\n",
         StartedRanks(2, launched=True)),
        ("import lightning as L\ntrainer = L.Trainer(accelerator='gpu', devices=2)\n",
         StartedRanks(2, launched=True)),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net)\n",
         StartedRanks(2, launched=True)),
        ("from transformers import AutoModel\nmodel = AutoModel.from_pretrained('x')\n", None),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)\n",
         StartedRanks(2, launched=True)),
    ],
)  # fmt: skip
def test_who_starts_the_ranks(script: str, expected: StartedRanks | None, tmp_path: Path) -> None:
    """What the script imports counts, other scripts beside it do not."""
    (tmp_path / "engine.py").write_text(JOIN)
    (tmp_path / "other.py").write_text(
        "import engine\nimport multiprocessing as mp\nmp.Process()\n"
    )
    (tmp_path / "train.py").write_text(script)
    assert find_ranks(tmp_path / "train.py", tmp_path, 2) == expected
    assert find_ranks(tmp_path / "train.py", tmp_path, None) is None


def test_modules_lie_in_the_folder_that_it_is_run_in(tmp_path: Path) -> None:
    """As `python -m scripts.train` finds them."""
    for name, text in {"scripts/train.py": "import lib.engine\n", "lib/engine.py": JOIN}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert find_ranks(tmp_path / "scripts/train.py", tmp_path, 2) == StartedRanks(2, launched=True)


def test_options_of_the_program_are_not_torchruns() -> None:
    program = ["train.py", "--logs", "out"]
    _, _, *given = StartedRanks(2, launched=True).command(program)
    found = parse_args(given)
    assert [found.training_script, *found.training_script_args] == program


def part(folder: Path, rank: int | None, data: bytes, **more: Any) -> RankRecording:
    folder.mkdir()
    name = "0.end.Net.w"
    header = {name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    (folder / "t").write_bytes(len(text).to_bytes(8, "little") + text + data)
    table = {
        "rank": rank, "ended": "", "seconds": 1.0, "files": [], "left_out": [], "steps": 2,
        "randomness": {"drawn": 1}, "processes": 0, "outside": [], "devices": ["jax"],
        "in_parts": [], "not_copied": [],
        "events": [{"kind": "end", "name": "Net", "step": 2, "tensors": {"w": name}}],
    }  # fmt: skip
    return RankRecording(folder, {**table, **more})


def test_ranks_become_one_recording(tmp_path: Path) -> None:
    whole = part(tmp_path / "whole", None, b"", processes=3, devices=["cpu"], events=[])
    parts = [part(tmp_path / str(rank), rank, bytes([rank] * 3)) for rank in (1, 0)]
    stranger = part(tmp_path / "none", None, b"xxx")
    table = merged(whole, [*parts, stranger], tmp_path, "t")
    assert [event["name"] for event in table["events"]] == ["rank 0: Net", "rank 1: Net"]
    assert (table["ranks"], table["processes"]) == (2, 1)  # one that joined no group
    assert table["devices"] == ["jax"]
    assert table["randomness"] == {"drawn": 3}
    header = read_header(tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    assert table["tensors_sha256"] == hashlib.sha256(content).hexdigest()  # a golden checks it
    begin = 8 + int.from_bytes(content[:8], "little")
    for rank, event in enumerate(table["events"]):
        first, last = header[event["tensors"]["w"]]["data_offsets"]
        assert content[begin + first : begin + last] == bytes([rank] * 3)


def test_the_rank_that_failed_is_named_not_those_that_ended_for_its_sake(tmp_path: Path) -> None:
    parts = [
        part(tmp_path / "0", 0, b"", ended="t.py:9: RuntimeError: peer", ended_at=7.5),
        part(tmp_path / "1", 1, b"", ended="t.py:3: ValueError: no", ended_at=7.0),
    ]
    assert merged(None, parts, tmp_path, "t")["ended"] == "rank 1: t.py:3: ValueError: no"


def test_where_no_rank_could_join_the_first_that_failed_is_told(tmp_path: Path) -> None:
    parts = [
        part(tmp_path / "0", None, b"x", ended="t.py:9: ImportError: peer", ended_at=7.5),
        part(tmp_path / "1", None, b"x", ended="t.py:3: ImportError: no", ended_at=7.0),
    ]
    table = merged(None, parts, tmp_path, "t")
    assert (table["ended"], table["ranks"]) == ("t.py:3: ImportError: no", 0)
