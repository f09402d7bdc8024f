"""Arguments that librosa, pandas and scikit-learn take by their names alone now."""

import ast
import inspect

import pytest
from helpers import constructs, migrated, run

from migrator.analysis import old_calls
from migrator.analysis.upgrade_tables import Removed, keyword_only

HEAD = "import torch\nimport librosa\nimport pandas as pd\nfrom librosa.filters import mel\n"
MODEL = "\nx = torch.ones(3).cuda()\n"
ENTRIES = list(keyword_only().values())


def called(gone: Removed, arguments: int) -> str:
    given = ", ".join(f"a{place}" for place in range(arguments))
    return f"import torch\nimport {gone.name.rpartition('.')[0]}\n{MODEL}y = {gone.name}({given})\n"


@pytest.mark.parametrize("gone", ENTRIES, ids=lambda gone: gone.name)
def test_each_argument_gets_its_name_or_is_reported(gone: Removed) -> None:
    every = gone.takes + len(gone.named)
    source = called(gone, every)
    assert old_calls.may_be_in(source.encode())
    if gone.exact:
        call = ast.parse(migrated(source)).body[-1].value  # type: ignore[attr-defined]
        assert [keyword.arg for keyword in call.keywords] == list(gone.named)
        assert [*map(ast.unparse, call.args), *(ast.unparse(k.value) for k in call.keywords)] == [
            f"a{place}" for place in range(every)
        ]
        source = called(gone, every + 1)  # what the next one is called, nobody knows
    found = [d for d in constructs(run(source)) if d.code == "UPG003"]
    assert [str(d.outcome) for d in found] == ["reported"]
    assert not [d for d in constructs(run(called(gone, gone.takes))) if d.code == "UPG003"]


@pytest.mark.parametrize("gone", ENTRIES, ids=lambda gone: gone.name)
def test_the_names_are_those_of_the_library(gone: Removed) -> None:
    module, _, name = gone.name.rpartition(".")
    function = getattr(pytest.importorskip(module), name)
    parameters = inspect.signature(function).parameters.values()
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} >= set(gone.named)
    assert sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) == gone.takes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = mel(r, 512, fmax=f)", "y = mel(sr=r, n_fft=512, fmax=f)"),
        ("y = pd.concat([a, b.cuda()], 1)", 'y = pd.concat([a, b.to("jax")], axis=1)'),
        ("y = pd.concat([a, b], axis=1)", "y = pd.concat([a, b], axis=1)"),
        ("y = mel(*a)", "y = mel(*a)"),
        ("y = mel(r, **a)", "y = mel(r, **a)"),
    ],
)
def test_it_reads_as_written_by_hand(before: str, after: str) -> None:
    assert after in migrated(f"{HEAD}{MODEL}{before}\n")


def test_a_changed_default_is_named() -> None:
    (found,) = [d for d in constructs(run(f"{HEAD}{MODEL}y = librosa.load(p, 16000)\n"))
                if d.code == "UPG003"]  # fmt: skip
    assert "soxr_hq" in found.message


def test_pandas_gives_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    first, second = pandas.DataFrame({"a": [1, 2]}), pandas.DataFrame({"b": [3, 4]})
    program = migrated(f"{HEAD}{MODEL}y = pd.concat([first, second], 1)\n").splitlines()[-1]
    given = {"pd": pandas, "first": first, "second": second}
    exec(program, given)
    assert given["y"].to_numpy().tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = pd.DataFrame(x).drop('a', 1)", "y = pd.DataFrame(x).drop('a', axis=1)"),
        ("df = pd.read_csv(p)\ny = df.sort_values('a', 0, False)",
         "y = df.sort_values('a', axis=0, ascending=False)"),
        ("y = unknown.drop('a', 1)", "y = unknown.drop('a', 1)"),
        ("y = ax.hist(v, normed=True)", "y = ax.hist(v, density=True)"),
    ],
)  # fmt: skip
def test_methods(before: str, after: str) -> None:
    assert after in migrated(f"{HEAD}{MODEL}{before}\n")
