"""`explain` by code, by family and by name, `help`, and what is meant by a misspelt word."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import cli, one_line, write_tree
from rich.console import Console

from migrator.report.terminal import say

from .scripts import TO


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "torch.cuda.Stream",
            (
                "* torch_tpu: rewritten (CUD003), `print(torch.Stream())`",
                "* torch_xla, torchax: reported (CUD003): streams have no counterpart",
            ),
        ),
        (
            "torch.Tensor.cuda",
            ('* torch_xla: rewritten (MOV001), `print(x.to("xla"))`',),
        ),
        (
            "apex.normalization.FusedLayerNorm",
            ("* torch_tpu, torch_xla, torchax: rewritten (LIB005), `print(torch.nn.LayerNorm())`",),
        ),
        (
            "torch.cuda.Strem",
            (
                "PyTorch has no torch.cuda.Strem; did you mean torch.cuda.Stream?",
                "* torchax: reported (UPG006): torch.cuda has no Strem",
            ),
        ),
        ("flash_attn", ("reported (LIB001): flash_attn is for CUDA only",)),
    ],
)
def test_a_name_says_what_becomes_of_it(tmp_path: Path, name: str, lines: tuple[str, ...]) -> None:
    run = cli("explain", name, cwd=tmp_path)
    assert run.returncode == 0
    said = run.stdout.decode()
    assert all(line in said for line in lines), said


def test_a_name_without_a_gpu(tmp_path: Path) -> None:
    run = cli("explain", "torch.relu", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "tpu-migrate: torch.relu is no GPU construct")


def test_a_family_lists_its_codes(tmp_path: Path) -> None:
    run = cli("explain", "trn", cwd=tmp_path)
    assert run.returncode == 0
    assert "TRN001  step-boundary: " in run.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "TRN055"), "no code TRN055; did you mean TRN005"),
        (("train.py", *TO, "--select", "CUD999"), "no rule begins with 'CUD999'; did you mean CUD"),
        (("train.py", *TO, "--ignore", "cuda"), "no rule begins with 'cuda'; did you mean CUD"),
        (("explain",), "explain takes a code (CUD003), or a name"),
        (("explain", "Stream"), "did you mean torch.cuda.Stream?"),
        (("explain", "synchronise"), "did you mean torch.cuda.synchronize?"),
        (("explain", "nonsense"), "tpu-migrate rules lists all codes"),
        (("trian.py", *TO), "trian.py: no such file or folder; did you mean train.py?"),
        (("verify", "train.py", "--epochs", "1"), "come behind --: -- --epochs"),
    ],
)
def test_what_may_have_been_meant(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    write_tree(tmp_path, {"train.py": "x = 1\n"})
    run = cli(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "tpu-migrate: ", said)


def test_help_is_a_word_as_well(tmp_path: Path) -> None:
    for word, usage in (("", "PATH... --target"), ("verify", "verify [OPTIONS]")):
        run = cli("help", *filter(None, [word]), cwd=tmp_path)
        assert run.returncode == 0
        assert run.stdout.decode().startswith(f"Usage: tpu-migrate {usage}")


def test_where_there_is_no_gpu_code_it_says_so(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "print(1)\n"})
    run = cli(".", *TO, cwd=tmp_path)
    assert run.returncode == 0 and "no GPU code was found" in run.stdout.decode()


def test_where_there_are_no_files_it_says_so(tmp_path: Path) -> None:
    write_tree(tmp_path, {"empty/notes.txt": "cuda\n", "gone/a.py": "x.cuda()\n"})
    for options in (("empty",), ("gone", "--exclude", "a.py")):
        run = cli(*options, *TO, cwd=tmp_path)
        assert run.returncode == 0 and "nothing to look at: no Python files" in run.stdout.decode()


def test_a_message_without_code_stands_right_behind_its_rule(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\nx.cuda()\ny = 3  # tpu-migrate: ignore\n"})
    run = cli("a.py", *TO, "--check", cwd=tmp_path)
    assert "SUP001  there is nothing to ignore on this line" in run.stdout.decode()


@pytest.mark.parametrize(
    "names",
    [
        ["train.py", "bench.py"],
        ["main.py", "demo.py", "tools/train.py"],
        ["train.py", "main.py", "train_old.py", "a/train.py"],
        ["src/latest.py", "tests/train.py", "test_main.py"],
    ],
)
def test_the_next_command_names_the_program_that_a_user_is_likely_to_start(
    tmp_path: Path, names: list[str]
) -> None:
    program = "import torch\nx = torch.ones(2).cuda()\n"
    write_tree(tmp_path, dict.fromkeys(names, program))
    run = cli(".", *TO, "--check", cwd=tmp_path)
    assert f"compare the numbers: tpu-migrate verify {names[0]} --target" in run.stdout.decode()


def test_paragraphs_are_wrapped_at_words_and_indented() -> None:
    to = Console(width=30, record=True)
    long = "a_path/that_is_longer_than_a_line/train.py:1:1"
    say(to, f"{long}  CUD003  streams have no counterpart, take them out", 4)
    first, *rest = to.export_text().splitlines()
    assert first == long
    assert all(line.startswith("    ") and len(line) <= 30 for line in rest)
    assert " ".join(" ".join(rest).split()) == "CUD003 streams have no counterpart, take them out"
