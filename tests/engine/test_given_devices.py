"""Programs whose device only a configuration or a command names."""

from pathlib import Path

import pytest
from helpers import read_tree, write_tree

from migrator import migrate_paths

SETTINGS = "device: cuda\nlr: 0.1\n"
SET_UP = "tpu_runtime.setup()"
WORDS = [("torchax", "jax"), ("torch_xla", "xla"), ("torch_tpu", "tpu")]


def _program(device: str) -> str:
    return f"""\
import argparse

import torch
import yaml

args = argparse.Namespace()
cfg = config = yaml.safe_load(open("config.yaml"))
model = torch.nn.Linear(2, 2).to({device})
"""


def _migrated(root: Path, target: str = "torchax") -> dict[str, str]:
    migrate_paths([root], target, write=True, allow_dirty=True)
    return {name: text.decode() for name, text in read_tree(root).items() if name != "vendor"}


@pytest.mark.parametrize(("target", "word"), WORDS)
@pytest.mark.parametrize(
    "device", ["cfg['device']", "cfg.device", "config.train.device", "cfg.get('device', 'cpu')",
               "config['train']['gen_device']", "args.device"],
)  # fmt: skip
def test_a_program_that_asks_its_settings_is_set_up(
    tmp_path: Path, device: str, target: str, word: str
) -> None:
    write_tree(tmp_path, {"train.py": _program(device), "config.yaml": SETTINGS})
    found = _migrated(tmp_path, target)
    assert f"device: {word}" in found["config.yaml"]
    assert SET_UP in found["train.py"]


def test_a_command_gives_a_device_too(tmp_path: Path) -> None:
    files = {"train.py": _program("args.device"), "run.sh": "python train.py --device cuda\n"}
    found = _migrated(write_tree(tmp_path, files))
    assert found["run.sh"] == "python train.py --device jax\n"
    assert SET_UP in found["train.py"]


MOVES = "import torch\n\nprint(torch.ones(2).cuda())\n"
BY_CLICK = """\
import click
import torch


@click.command()
@click.option("--device")
def main(device):
    print(torch.ones(2, device=device))


main()
"""


def test_an_option_may_become_a_parameter(tmp_path: Path) -> None:
    files = {"train.py": BY_CLICK, "run.sh": "python train.py --device=cuda\n"}
    assert SET_UP in _migrated(write_tree(tmp_path, files))["train.py"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("run.sh", "python other.py --device cuda\n"), ("conf/other.yaml", "device: cuda\n")],
)
def test_what_is_given_to_another_program_sets_nothing_up(
    tmp_path: Path, name: str, text: str
) -> None:
    files = {"train.py": BY_CLICK, "other.py": BY_CLICK + "x.cuda()\n", name: text}
    assert _migrated(write_tree(tmp_path, files))["train.py"] == BY_CLICK


def test_a_loop_on_the_cpu_has_no_step_to_end(tmp_path: Path) -> None:
    loop = LOOP.replace("import yaml\n", "").replace('yaml.safe_load(open("config.yaml"))', "{}")
    files = {"train.py": loop, "net.py": NET, "other.py": MOVES, "conf/other.yaml": SETTINGS}
    assert _migrated(write_tree(tmp_path, files), "torch_xla")["train.py"] == loop


@pytest.mark.parametrize("settings", [SETTINGS.replace("cuda", "cpu"), "lr: 0.1\n"])
def test_what_names_no_gpu_sets_nothing_up(tmp_path: Path, settings: str) -> None:
    files = {"train.py": _program("cfg.device"), "config.yaml": settings}
    assert _migrated(write_tree(tmp_path, files)) == files


@pytest.mark.parametrize("device", ["other.device", "model.x.device", "'cpu'"])
def test_the_device_of_a_tensor_comes_from_no_settings(tmp_path: Path, device: str) -> None:
    files = {"train.py": _program(device), "config.yaml": SETTINGS}
    assert _migrated(write_tree(tmp_path, files)) == files


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": _program("cfg.device"), "config.yaml": SETTINGS})
    found = _migrated(tmp_path)
    assert _migrated(tmp_path) == found


LOOP = """\
import torch
import yaml

from net import make

if __name__ == "__main__":
    cfg = yaml.safe_load(open("config.yaml"))
    model = make(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        loss = model(torch.ones(1, 2).to(next(model.parameters()).device)).sum()
        loss.backward()
        optimizer.step()
"""
NET = """\
import torch


def make(cfg):
    return torch.nn.Linear(2, 2).to(cfg["device"])
"""


def test_its_loop_on_torch_xla_ends_each_step(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": LOOP, "net.py": NET, "config.yaml": SETTINGS})
    found = _migrated(tmp_path, "torch_xla")
    assert "        optimizer.step()\n        torch_xla.sync()\n" in found["train.py"]
    assert SET_UP in found["train.py"]


@pytest.mark.parametrize(("target", "word"), WORDS)
@pytest.mark.parametrize("device", ["torch.device(cfg.trainer.where)", "cfg.trainer['where']"])
def test_a_key_of_another_name_is_a_device_where_it_is_taken_for_one(
    tmp_path: Path, device: str, target: str, word: str
) -> None:
    settings = "trainer:\n  where: cuda:0  # the first\n  kernels: cuda\n"
    write_tree(tmp_path, {"train.py": _program(device), "config.yaml": settings})
    found = _migrated(tmp_path, target)
    assert found["config.yaml"] == settings.replace("cuda:0", word)
    assert SET_UP in found["train.py"]


def test_a_key_of_another_name_alone_is_none(tmp_path: Path) -> None:
    files = {"train.py": _program("cfg.where.value"), "config.yaml": "where: cuda\n"}
    assert _migrated(write_tree(tmp_path, files)) == files


BY_HYDRA = """\
import hydra
import torch


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    trainer = hydra.utils.instantiate(cfg.trainer)
    trainer.fit(torch.nn.Linear(2, 2))


if __name__ == "__main__":
    main()
"""


def test_a_trainer_that_only_settings_name(tmp_path: Path) -> None:
    files = {
        "train.py": BY_HYDRA,
        "conf/config.yaml": "defaults:\n  - trainer: default\n",
        "conf/trainer/default.yaml": "_target_: lightning.pytorch.Trainer\naccelerator: gpu\n",
    }
    found = _migrated(write_tree(tmp_path / "p", files))
    assert "accelerator: tpu" in found["conf/trainer/default.yaml"]
    assert SET_UP in found["train.py"]
    files["conf/trainer/default.yaml"] = "_target_: mine.Trainer\naccelerator: gpu\n"
    assert _migrated(write_tree(tmp_path / "q", files))["train.py"] == files["train.py"]
