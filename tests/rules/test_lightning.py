"""Lightning's Trainer and Fabric: told to use a TPU, or reported; nothing of them is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, constructs, migrated, reported, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import portable, targets

PROGRAM = "import lightning as L\n\ntrainer = L.Trainer({})\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('accelerator="gpu"', 'accelerator="tpu"'),
        ("accelerator='cuda', devices=[0]", "accelerator='tpu', devices=[0]"),
        (
            'accelerator="gpu" if fast else "cpu", precision="16-mixed"',
            'accelerator="tpu" if fast else "cpu", precision="bf16-mixed"',
        ),
        ("precision=16 if fast else 32", 'precision="bf16-mixed" if fast else 32'),
        ('precision="16-true"', 'precision="bf16-true"'),
        ('gpus=1, precision="16"', 'precision="bf16-mixed", accelerator="tpu", devices=1'),
    ],
)
def test_a_gpu_becomes_a_tpu(before: str, after: str, target: str) -> None:
    assert migrated(PROGRAM.format(before), target) == PROGRAM.format(after)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "made",
    [
        "import lightning as L\nx = L.Trainer()\n",
        "import pytorch_lightning as pl\nx = pl.Trainer(max_epochs=3)\n",
        "from lightning.pytorch import Trainer\nx = Trainer(accelerator='auto', devices=1)\n",
        "from lightning.fabric import Fabric\nx = Fabric()\n",
        "from lightning.pytorch.cli import LightningCLI\nx = LightningCLI(Net)\n",
    ],
)
def test_a_program_that_only_makes_one_is_set_up(made: str, target: str) -> None:
    """Without set-up it would train on the CPU, and say nothing."""
    result = run(made, target, entry=True)
    (found,) = constructs(result)
    assert (found.code, found.outcome) == ("LTN001", Outcome.KEPT)
    text = result.source.decode()
    assert text.index("tpu_runtime.setup()") < text.index("x = ")


def test_the_default_of_a_command_line() -> None:
    source = (
        "from lightning.pytorch.cli import LightningCLI\n"
        "LightningCLI(Net, trainer_defaults="
        '{"accelerator": "gpu", "precision": "16-mixed", "max_epochs": 3})\n'
    )
    after = source.replace("gpu", "tpu").replace("16", "bf16")
    assert migrated(source) == after
    assert not reported(run(source))


def test_a_trainer_that_a_configuration_makes_is_set_up() -> None:
    """Lightning's `accelerator="tpu"`, which the file of YAML is to say, is there after set-up."""
    source = (
        "import hydra\nfrom lightning import Trainer\ndef train(cfg):\n"
        "    trainer: Trainer = hydra.utils.instantiate(cfg.trainer)\n"
        "    hydra.utils.instantiate(cfg.model)\n"
        'if __name__ == "__main__":\n    train(load())\n'
    )
    result = run(source, entry=True)
    (found,) = constructs(result)
    assert (found.code, found.outcome) == ("LTN001", Outcome.KEPT)
    assert "tpu_runtime.setup()" in result.source.decode()
    assert not constructs(run(source.replace("from lightning", "from own"), entry=True))


@pytest.mark.parametrize("target", TARGETS)
def test_what_stays_on_the_cpu_needs_no_set_up(target: str) -> None:
    result = run(PROGRAM.format('accelerator="cpu"'), target, entry=True)
    assert not result.changed
    assert [found.outcome for found in constructs(result)] == [Outcome.KEPT]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("accelerator=args.accelerator", '"tpu" or "auto"'),
        ("devices=8", "start them by torchrun"),
        ("devices=[0, 1]", "start them by torchrun"),
        ("devices=-1", "one process for each chip"),
        ("devices=args.devices", "decided at run time"),
        ("num_nodes=2", "by torchrun"),
        ("gpus=-1", "devices=1"),
        ("gpus=args.gpus", "devices=1"),
        ('strategy="fsdp"', "shards over GPUs"),
        ("strategy=args.strategy", "decided at run time"),
        ("precision=args.precision", "bf16-mixed"),
        ('precision="64-true"', "float64"),
        ('precision="transformer-engine"', "CUDA only"),
    ],
)
def test_what_a_person_has_to_decide_is_reported(given: str, said: str) -> None:
    result = run(PROGRAM.format(given))
    assert not result.changed
    (found,) = (d for d in constructs(result) if d.outcome is Outcome.REPORTED)
    assert found.code.startswith("LTN") and said in found.message


@pytest.mark.parametrize(
    "given", ['strategy="ddp"', "strategy=DDPStrategy(find_unused_parameters=True)"]
)
def test_ddp_in_one_process_is_that_process(given: str) -> None:
    imports = "from lightning.pytorch.strategies import DDPStrategy\n"
    result = run(imports + PROGRAM.format(given))
    assert [d.outcome for d in constructs(result)] == [Outcome.KEPT, Outcome.KEPT]


def test_a_portable_program_takes_what_is_there() -> None:
    source = PROGRAM.format('accelerator="gpu"').encode()
    target = portable(targets()["torchax"])
    result = migrate_file(Path("module.py"), source, target, Options(entry=False))
    assert b'accelerator="auto"' in result.source


GROUP: dict[str, str] = {
    "configs/train.yaml": "defaults:\n  - _self_\n  - trainer: gpu\n",
    "configs/trainer/default.yaml": "_target_: lightning.pytorch.Trainer\naccelerator: cpu\n",
    "configs/trainer/gpu.yaml": "defaults:\n  - default\n\naccelerator: gpu  # one\ndevices: 1\n",
    "configs/trainer/ddp.yaml": "defaults:\n  - default\n\naccelerator: gpu\ndevices: 4\n",
    "configs/trainer/mps.yaml": "defaults:\n  - default\n\naccelerator: mps\n",
    "train.py": "import torch\nx = torch.ones(2).cuda()\nprint(x)\n",
}


def test_a_group_of_settings_for_the_trainer(tmp_path: Path) -> None:
    """The group's default names the Trainer; the others only what differs."""
    write_tree(tmp_path, GROUP)
    report = migrate_paths([tmp_path])
    out = {f.path.name: f.result.source.decode() for f in report.files}
    assert out["gpu.yaml"] == GROUP["configs/trainer/gpu.yaml"].replace("gpu", "tpu")
    left = {path.name: d.message for path, d in report.diagnostics(Outcome.REPORTED)}
    assert left.keys() == {"ddp.yaml", "mps.yaml"} and "devices: 4 has to be 1" in left["ddp.yaml"]


def test_the_settings_of_a_command_line_of_lightning(tmp_path: Path) -> None:
    files = {
        "config.yaml": "trainer:\n  accelerator: gpu\nmodel:\n  class_path: model.Net\n",
        "main.py": "from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n",
    }
    write_tree(tmp_path, files)
    out = {f.path.name: f.result.source.decode() for f in migrate_paths([tmp_path]).files}
    assert "accelerator: tpu" in out["config.yaml"] and "setup()" in out["main.py"]
