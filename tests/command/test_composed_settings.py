"""Settings belong to the programs that read them, and bring those programs."""

from pathlib import Path

import pytest
from helpers import cli, committed

from migrator import migrate_paths
from migrator.runs.run_report import Report

HELPER = """\
import torch


def batch():
    return torch.ones(3, 4).cuda()
"""
READER = """\
import argparse

import torch
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config"{default})
config = yaml.safe_load(open(parser.parse_args().config))
model = torch.nn.Linear(4, 2).to(config["device"])
"""


def _names(report: Report) -> list[str]:
    return [file.path.name for file in report.changed]


COMPOSED = {
    "train.py": """\
import hydra
import torch


@hydra.main(version_base=None, config_path="conf", config_name="train")
def main(cfg):
    net = hydra.utils.instantiate(cfg.model)
    print(net(torch.ones(2)))


if __name__ == "__main__":
    main()
""",
    "conf/train.yaml": "defaults:\n  - model: small\n",
    "conf/model/small.yaml": "_target_: nets.small.Small\nsize: 2\n",
    "conf/model/large.yaml": "_target_: nets.large.Large\ndevice: cuda\n",
    "nets/__init__.py": "",
    "nets/small.py": "import torch\n\n\nclass Small:\n    def __init__(self, size):\n"
    "        self.w = torch.ones(size).cuda()\n",
    "nets/large.py": "import torch\n\n\nclass Large:\n    def __init__(self, device):\n"
    "        self.w = torch.ones(2, device=device)\n",
    "other.py": HELPER,
}
OF_COMPOSED = ["large.yaml", "small.py", "train.py"]


@pytest.mark.parametrize("named", ["train.py", "conf/train.yaml", "conf/model/large.yaml"])
def test_what_hydra_composes_belongs_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(committed(tmp_path, COMPOSED))
    report = migrate_paths([named], "torchax", write=True)
    assert (_names(report), report.incomplete) == (OF_COMPOSED, False)
    assert "tpu_runtime.setup()" in Path("train.py").read_text(encoding="utf-8")
    assert Path("other.py").read_text(encoding="utf-8") == HELPER


def test_a_program_whose_settings_name_gpu_code_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(committed(tmp_path, COMPOSED))
    report = migrate_paths(["."], "torchax", write=True)
    assert {*_names(report)} == {*OF_COMPOSED, "other.py"}
    assert "tpu_runtime.setup()" in Path("train.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("train.py", 'config_path="conf"', "config_path=CONF"),
        ("train.py", 'config_path="conf"', 'config_path="pkg://conf"'),
        ("conf/model/large.yaml", "nets.large.Large", "nets.${name}"),
        ("conf/train.yaml", "defaults:", "hydra:\n  searchpath: [file://elsewhere]\ndefaults:"),
    ],
)
def test_settings_from_elsewhere_may_name_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, old: str, new: str
) -> None:
    files = {**COMPOSED, path: COMPOSED[path].replace(old, new)}
    monkeypatch.chdir(committed(tmp_path, files))
    report = migrate_paths(["train.py"], "torchax")
    assert report.incomplete
    assert any("train.py reads settings by Hydra" in note for note in report.notes)


def test_settings_bring_the_programs_that_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "configs/base.yaml": "device: cuda\n",
        "settings.py": 'import yaml\n\nCONFIG = yaml.safe_load(open("configs/base.yaml"))\n',
        "train.py": "import torch\nfrom settings import CONFIG\n\n"
        'x = torch.ones(2, device=CONFIG["device"])\nprint(x.cuda())\n',
        "other.py": HELPER,
    }
    monkeypatch.chdir(committed(tmp_path, files))
    report = migrate_paths(["configs/base.yaml"], "torchax")
    assert (_names(report), report.incomplete) == (["base.yaml", "train.py"], False)
    hooked = migrate_paths(["configs/base.yaml"], "torchax", from_hook=True)
    assert not hooked.changed
    assert "tpu-migrate configs/base.yaml --target torchax" in hooked.notes[0]


def test_settings_that_nothing_names_are_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"configs/base.yaml": "device: cuda\n", "train.py": READER.format(default="")}
    monkeypatch.chdir(committed(tmp_path, files))
    done = cli("configs/base.yaml", "--target", "torchax", cwd=Path.cwd())
    assert done.returncode == 1
    said = " ".join(done.stdout.decode().split())
    assert "base.yaml: may be read by programs that do not name it: migrate all" in said
