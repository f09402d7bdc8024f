"""Functions of which only a part of the result is used, and the inverse of a Fourier transform."""

import inspect

import pytest
import torch
from helpers import constructs, migrated, run

from migrator.analysis import old_calls

HEAD = "import torch, inspect\n\nx = torch.ones(3).cuda()\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y, _ = torch.solve(b, a)", "y, _ = torch.linalg.solve(a, b), None"),
        ("y, lu = torch.solve(b, a)\nprint(lu)", "y, lu = torch.solve(b, a)"),
        ("y = inspect.getargspec(f).args", "y = inspect.getfullargspec(f).args"),
        ("y = inspect.getargspec(f)[3]", "y = inspect.getfullargspec(f)[3]"),
        ("y = inspect.getargspec(f).keywords", "y = inspect.getargspec(f).keywords"),
        ("a, b, c, d = inspect.getargspec(f)", "a, b, c, d = inspect.getargspec(f)"),
        ("s = torch.stft(x, 8)\ny = torch.istft(s, 8)",
         "y = torch.istft(torch.view_as_complex(s), 8)"),
        ("y = torch.istft(torch.stft(x, 8), 8)",
         "y = torch.istft(torch.stft(x, 8, return_complex=False), 8)"),
        ("s = torch.stft(x, 8, return_complex=True)\ny = torch.istft(s, 8)",
         "y = torch.istft(s, 8)"),
    ],
)  # fmt: skip
def test_it_reads_as_written_by_hand(before: str, after: str) -> None:
    assert after in migrated(f"{HEAD}{before}\n")


def test_what_is_not_shown_is_reported() -> None:
    for line, is_said in (
        ("y = torch.istft(s, 8)", True),
        ("y = torch.istft(torch.stft(x, 8), 8)", True),
        ("y = torch.istft(s.to(torch.complex64), 8)", False),
        ("s = torch.stft(x, 8, return_complex=True)\ny = torch.istft(s, 8)", False),
        ("y = torch.istft(torch.polar(a, b), 8)", False),
    ):
        found = constructs(run(f"{HEAD}{line}\n"))
        said = [d for d in found if "complex numbers" in d.message]
        assert bool(said) is is_said, line
        assert old_calls.may_be_in(f"{HEAD}{line}\n".encode())


def test_the_numbers_are_those_of_then() -> None:
    a, b = torch.tensor([[2.0, 1], [1, 3]]), torch.tensor([[1.0], [2]])
    given: dict[str, object] = {"torch": torch, "a": a, "b": b}
    exec(migrated(f"{HEAD}y, _ = torch.solve(b, a)\n").splitlines()[-1], given)
    solved = given["y"]
    assert isinstance(solved, torch.Tensor) and torch.allclose(a @ solved, b)
    signal = torch.randn(64)
    lines = migrated(f"{HEAD}s = torch.stft(w, 16)\ny = torch.istft(s, 16)\n").splitlines()[-2:]
    given = {"torch": torch, "w": signal}
    exec("\n".join(lines), given)
    again = given["y"]
    assert isinstance(again, torch.Tensor) and torch.allclose(again, signal, atol=1e-5)
    assert inspect.getfullargspec(test_what_is_not_shown_is_reported)[0] == []
