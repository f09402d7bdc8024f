"""Configurations change with the programs that may read them."""

from pathlib import Path

import pytest
from helpers import write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome

MIGRATES = "import torch\nimport yaml\n\nx = torch.ones(3).cuda()\n"
STAYS = """\
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2,))
"""
SETTING = "model: small\ndevice: cuda\n"


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ({"main.py": MIGRATES}, True),
        ({"main.py": MIGRATES, "other.py": STAYS}, False),
        ({"conf/main.py": MIGRATES, "apart/other.py": STAYS}, True),  # which isn't above it
        ({"src/main.py": MIGRATES}, True),
        ({"src/main.py": MIGRATES, "src/other.py": STAYS}, False),
        (
            {
                "src/main.py": MIGRATES,
                "tests/test_other.py": f"import pytest\n{STAYS}\n\ndef test_it(): pass\n",
            },
            True,
        ),
    ],
)
def test_it_stays_with_a_program_that_may_read_it(
    tmp_path: Path, files: dict[str, str], changes: bool
) -> None:
    write_tree(tmp_path, {**files, "conf/base.yaml": SETTING})
    report = migrate_paths([tmp_path], "torchax")
    file = next(file for file in report.files if file.path.name == "base.yaml")
    assert file.result.changed == changes
    if not changes:
        [found] = file.result.diagnostics
        assert found.message.endswith("may read it, and stays as it is")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conf/base.yaml", SETTING),
        ("conf/config.json", '{"model": "small", "device": "cuda"}\n'),
        ("conf/train.toml", 'model = "small"\ndevice = "cuda"\n'),
        ("conf/train.toml", '[trainer]\ndevice="cuda:0"\n'),
        ("run.sh", "python main.py --device cuda\n"),
        ("run.sh", "CUDA_VISIBLE_DEVICES=0 python -u ./main.py --lr 1 --device=cuda:0\n"),
        ("run.sh", "python -m main --device cuda\n"),
        ("Makefile", "run:\n\tpython main.py --device cuda\n"),
    ],
)
def test_every_form_of_it_follows_its_reader(tmp_path: Path, name: str, text: str) -> None:
    for program, expected in ((MIGRATES, True), (STAYS, False)):
        write_tree(tmp_path, {"main.py": program, "other.py": MIGRATES, name: text})
        report = migrate_paths([tmp_path], "torchax")
        file = next(file for file in report.files if file.path == tmp_path / name)
        assert file.result.changed is expected
        if not expected:
            found = [d for d in file.result.diagnostics if "stays as it is" in d.message]
            assert found and all(d.outcome is Outcome.REPORTED for d in found)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("trainer.device=cuda", "trainer.device=jax"),
        ("+model.eval_device=cuda:0 x=1", "+model.eval_device=jax x=1"),
        ("trainer.n_gpus_per_node=8", None),  # main.py reads it
        ("trainer.n_gpus=8", ""),
        ("+trainer.accelerator=gpu", ""),
        ("device=cuda", ""),
    ],
)
def test_overrides_follow_their_reader(tmp_path: Path, given: str, changed: str | None) -> None:
    """As settings do: one is rewritten, kept where the program counts, or reported."""
    line = f"python main.py {given}\n"
    count = "print(cfg.trainer.n_gpus_per_node)\n"
    for program in (MIGRATES, STAYS):
        write_tree(tmp_path, {"main.py": program + count, "run.sh": line})
        report = migrate_paths([tmp_path], "torchax")
        file = next(file for file in report.files if file.path.name == "run.sh")
        expected = changed if program is MIGRATES else ""
        outcome = Outcome.REPORTED if expected == "" else Outcome.KEPT
        outcome = Outcome.REWRITTEN if expected else outcome
        assert [d.outcome for d in file.result.diagnostics] == [outcome]
        assert file.result.source.decode() == line.replace(given, expected or given)


def test_lines_for_other_programs_change(tmp_path: Path) -> None:
    lines = "python main.py --device cuda\npython other.py --device cuda\n"
    write_tree(tmp_path, {"main.py": STAYS, "other.py": MIGRATES, "run.sh": lines})
    report = migrate_paths([tmp_path], "torchax")
    file = next(file for file in report.files if file.path.name == "run.sh")
    assert (
        file.result.source
        == lines.replace("other.py --device cuda", "other.py --device jax").encode()
    )


def test_a_hook_asks_for_programs_that_it_was_not_given(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": STAYS, "conf/base.yaml": SETTING})
    report = migrate_paths([tmp_path / "conf/base.yaml"], "torchax", from_hook=True)
    assert not report.changed


def test_a_setting_that_no_program_reads_is_reported(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": MIGRATES.replace("import yaml\n", ""), "base.yaml": SETTING})
    report = migrate_paths([tmp_path], "torchax")
    assert [file.path.name for file in report.changed] == ["main.py"]
    [(_, found)] = report.diagnostics(Outcome.REPORTED)
    assert found.message.startswith("no program here reads settings")
