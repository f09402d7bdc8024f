"""Upgrades for the versions of an environment that is named: only what it lacks."""

from pathlib import Path
from typing import Any

import pytest
from helpers import cli, migrated, one_line, run, write_tree
from target import TARGET

from migrator.analysis.installed_versions import read_versions
from migrator.config import Config, load
from migrator.errors import UsageError

HEAD = "import torch\nimport numpy as np\nx = torch.ones(3).cuda()\n"
# By what is installed: code that stays with it, and is upgraded or reported with the next one.
UPGRADES = [
    ("numpy 1.23.5", "numpy 1.24.0", "y = np.float(1)"),
    ("numpy 1.26.4", "numpy 2.0.0", "y = np.Inf"),
    ("numpy 1.26.4", "numpy 2.1.0", "y = np.array([1], copy=False)"),
    ("numpy 1.26.4", "numpy 2.4.6", "from numpy import Inf, NaN\ny = [Inf, NaN]"),
    ("numpy 1.26.4", "numpy 2.3.0", 'y = torch.tensor(np.fromstring(b"1", np.uint8))'),
    ("pillow 9.5.0", "pillow 10.0.0", "from PIL import Image\ny = Image.ANTIALIAS"),
    ("pandas 1.5.3", "pandas 2.0.0", "import pandas as pd\nt = pd.DataFrame()\nt = t.append(t)"),
    ("scipy 1.2.0", "scipy 1.17.1", "from scipy.misc import imresize\ny = imresize(x, 2)"),
    ("scikit-learn 0.19.2", "scikit-learn 1.7.0", "import sklearn.externals.joblib as j\nj.load"),
    ("pyyaml 5.4.1", "pyyaml 6.0", 'import yaml\ny = yaml.load("a: 1")'),
    ("matplotlib 3.7.5", "matplotlib 3.9.0", 'from matplotlib import style\nstyle.use("seaborn")'),
    ("python 3.11", "python 3.12", "import imp\nimp.reload(np)"),
    ("torchvision 0.11.3", "torchvision 0.24.0", "import torchvision.transforms as t\nt.Scale(3)"),
    ("torch 2.5.1", "torch 2.9.0", 'model = torch.load("model.pt", "cpu")\nmodel.eval()'),
    ("scipy 1.10.1", "scipy 1.17.1", "from scipy.special import no_such_name\nno_such_name(1)"),
    ("librosa 0.9.2", "librosa 0.11.0", "import librosa\ny = librosa.resample(x, 8, 16)"),
    ("timm 0.3.2", "timm 1.0.0", 'import timm\nassert timm.__version__ == "0.3.2"'),
]  # fmt: skip


def _upgrades(code: str, **options: Any) -> list[str]:
    result = run(HEAD + code, TARGET, **options)
    return [d.code for d in result.diagnostics
            if d.code.startswith("UPG") and d.outcome in ("rewritten", "reported")]  # fmt: skip


@pytest.mark.parametrize(("older", "newer", "code"), UPGRADES)
def test_only_what_the_environment_lacks_is_upgraded(older: str, newer: str, code: str) -> None:
    stays, goes = (tuple(each.split(" ")) for each in (older, newer))
    assert not _upgrades(code, versions=(stays,))
    assert _upgrades(code, versions=(goes,)) == _upgrades(code) != []
    text = migrated(HEAD + code, TARGET, versions=(stays,))
    assert all(line in text.splitlines() for line in code.splitlines())


@pytest.mark.parametrize(("older", "newer", "code"), UPGRADES)
def test_what_is_not_installed_has_the_versions_of_the_target(
    older: str, newer: str, code: str
) -> None:
    assert _upgrades(code, versions=(("click", "8.1"),)) == _upgrades(code)


def test_what_no_version_has_any_more_is_upgraded_in_all() -> None:
    code = "d = {1: 2}\nfor k, v in d.iteritems():\n    print(k, v)"
    assert _upgrades(code, versions=(("pandas", "1.5.3"), ("python", "3.11"))) == ["UPG004"]


# ---- reading an environment ----------------------------------------------------------------------


def _environment(folder: Path, *installed: str, python: str = "3.11") -> Path:
    packages = folder / "lib" / f"python{python}" / "site-packages"
    for each in installed:
        (packages / each).mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {python}.7\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").touch()
    return folder


def test_an_environment_is_read_by_its_folder_or_its_interpreter(tmp_path: Path) -> None:
    made = _environment(
        tmp_path / "env", "numpy-1.26.4.dist-info", "scikit_learn-1.2.2-py3.11.egg-info",
        "numpy", "torch-2.5.1+cu121.dist-info",
    )  # fmt: skip
    read = {"python": "3.11", "numpy": "1.26.4", "scikit-learn": "1.2.2", "torch": "2.5.1+cu121"}
    assert read_versions(made) == read_versions(made / "bin" / "python") == read


@pytest.mark.parametrize("what", ["", "file.txt"])
def test_what_is_no_environment_is_an_error(tmp_path: Path, what: str) -> None:
    (tmp_path / "file.txt").touch()
    with pytest.raises(UsageError, match="not an environment of Python"):
        read_versions(tmp_path / what)


def test_an_environment_is_named_on_the_command_line_or_in_the_settings(tmp_path: Path) -> None:
    _environment(tmp_path / "env", "numpy-1.26.4.dist-info")
    script = tmp_path / "src" / "train.py"
    write_tree(tmp_path, {"src/train.py": HEAD + "y = np.Inf\n"})
    asked = ("train.py", "--target", TARGET, "--diff")
    assert b"+y = np.inf" in cli(*asked, cwd=script.parent).stdout
    told = cli(*asked, "--python", "../env", cwd=script.parent).stdout
    assert b"+x = torch.ones(3)" in told and b"y = np.inf" not in told
    (tmp_path / "tpu-migrate.toml").write_text('python = "env/bin/python"\n')
    assert cli(*asked, cwd=script.parent).stdout == told
    assert load(script).options.versions == (("numpy", "1.26.4"), ("python", "3.11"))


def test_settings_that_name_no_environment_are_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": HEAD, "tpu-migrate.toml": 'python = "gone"\n'})
    said = cli(".", "--target", TARGET, "--check", cwd=tmp_path)
    assert said.returncode == 2 and "gone: not an environment of Python" in one_line(said.stderr)
    assert Config().options.versions == ()
