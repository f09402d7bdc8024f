"""Methods that pandas' frames and series lost, where the source shows one."""

import pytest
from helpers import constructs, migrated, run

HEAD = "import pandas as pd\nimport torch\n\nx = torch.ones(3).cuda()\n"
FRAME = "table = pd.DataFrame({'a': [1, 2]})\n"


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("y = table.as_matrix()", "y = table.to_numpy()"),
        ("y = table['a'].get_values()", "y = table['a'].to_numpy()"),
        ("y = table.get_value(0, 'a')", "y = table.at[0, 'a']"),
        ("y = table.clip_upper(1).a", "y = table.clip(upper=1).a"),
        ("y = table.dropna().applymap(str)", "y = table.dropna().map(str)"),
        ("y = table.a.is_monotonic and table['a'].is_monotonic", ""),
        ("y = pd.read_csv(f).head().as_matrix()", "y = pd.read_csv(f).head().to_numpy()"),
    ],
)
def test_a_method_has_a_new_name(line: str, after: str) -> None:
    after = after or "y = table.a.is_monotonic and table['a'].is_monotonic_increasing"
    assert migrated(f"{HEAD}{FRAME}{line}\n").endswith(f"{after}\n")


@pytest.mark.parametrize(
    "line",
    [
        "table = table.append({'a': 3}, ignore_index=True)",
        "for n in range(3):\n    table = table.append(pd.DataFrame())",
        "y = table['a'].append(pd.Series([3]))",
        "y = table.ix[0]",
        "y = pd.DataFrame.from_csv('a.csv')",
        "table.set_value(0, 'a', 3)",
        "y = table.as_matrix(columns=['a'])",
        "class Data:\n    def __init__(self, f):\n        self.t = pd.read_csv(f)\n"
        "    def row(self):\n        return self.t.ix[0]",
    ],
)
def test_others_are_reported(line: str) -> None:
    said = [d for d in constructs(run(f"{HEAD}{FRAME}{line}\n")) if d.code == "UPG004"]
    assert [str(d.outcome) for d in said] == ["reported"]


@pytest.mark.parametrize(
    "line",
    [
        "rows = []\nrows.append(table)",
        "rows = [table]\nrows[0].append(1)",
        "def add(table):\n    table.append(1)",
        "y = table.a.tolist()\ny.sort()",
        "other.ix[0]",
        "table = []\ntable.append(3)",
    ],
)
def test_what_may_be_something_else_stays(line: str) -> None:
    assert not [d for d in constructs(run(f"{HEAD}{FRAME}{line}\n")) if d.code == "UPG004"]


def test_a_file_without_a_device_stays() -> None:
    source = f"import pandas as pd\n{FRAME}print(table.as_matrix())\n"
    assert migrated(source, entry=True) == source
