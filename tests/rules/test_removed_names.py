"""Names that PyTorch, NumPy, other libraries and Python no longer have."""

import builtins
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import constructs, migrated, outcomes, run

from migrator.analysis import find_old_arithmetic, old_calls
from migrator.analysis.find_removed_names import may_be_in
from migrator.analysis.upgrade_tables import Removed, removed_names

HEAD = "import numpy as np\nimport torch\n\nx = torch.ones(3).cuda()\n"
NAMES = list(removed_names().values())
WITH_MODULE = [gone for gone in NAMES if "." in gone.name]
# These are there and raise.
RAISING = ("torch.symeig", "torch.eig", "torch.matrix_rank", "torch.lstsq", "torch.solve",
           "scipy.interpolate.interp2d")  # fmt: skip


def is_of_later_python(gone: Removed) -> bool:
    """Whether it is only gone in a newer Python than this one; a TPU may run with that."""
    version = re.fullmatch(r"Python 3\.(\d+)", gone.since)
    return version is not None and (3, int(version[1])) > sys.version_info[:2]


def test_every_entry_says_since_when_it_is_gone() -> None:
    assert not [gone.name for gone in NAMES if not re.search(r"\d", gone.since)]


def find(name: str) -> object:
    """What a full name leads to; None if it leads nowhere."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None


def is_here(name: str) -> bool:
    head = name.partition(".")[0]
    if head == "pytorch_lightning":
        return False
    return head in sys.stdlib_module_names or importlib.util.find_spec(head) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gone", [n for n in NAMES if is_here(n.name)], ids=lambda n: n.name)
def test_a_name_is_gone_and_what_takes_its_place_is_there(gone: Removed) -> None:
    if gone.name in RAISING:
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            function = find(gone.name)
            assert callable(function)
            function(torch.eye(2))
        return
    assert find(gone.name) is None or is_of_later_python(gone)
    if gone.exact and is_here(gone.instead):
        assert find(gone.instead) is not None


OF_LIGHTNING = """
import sys
from test_removed_names import NAMES, find
for gone in NAMES:
    if gone.name.startswith("pytorch_lightning."):
        assert find(gone.name) is None, gone.name
        assert not gone.exact or find(gone.instead) is not None, gone.instead
        print(gone.name)
"""


def test_names_of_lightning_are_gone() -> None:
    """In a process of their own: its metrics give SciPy a name back."""
    pytest.importorskip("pytorch_lightning")
    folders = os.pathsep.join(map(str, (Path(__file__).parent, *sys.path)))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OF_LIGHTNING],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": folders},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "pytorch_lightning.core.lightning" in run.stdout.split()


def through_module(gone: Removed) -> str:
    module = gone.name.rpartition(".")[0]
    return f"import torch\nimport {module}\n\nx = torch.ones(3).cuda()\ny = {gone.name}\n"


@pytest.mark.parametrize("gone", WITH_MODULE, ids=lambda n: n.name)
def test_a_use_is_replaced_or_reported(gone: Removed) -> None:
    found = [d for d in constructs(run(through_module(gone))) if d.code.startswith("UPG")]
    assert found
    if gone.exact:
        text = migrated(through_module(gone))
        assert text.rstrip().endswith(gone.instead.removeprefix("builtins."))
    elif gone.code and "(" not in gone.code and "{0}" not in gone.code:
        assert gone.name not in migrated(through_module(gone))
    else:
        [diagnostic] = [d for d in found if d.range.line == 5]
        assert str(diagnostic.outcome) == "reported" and gone.instead in diagnostic.message


@pytest.mark.parametrize("gone", NAMES, ids=lambda n: n.name)
def test_an_import_is_replaced_or_reported(gone: Removed) -> None:
    module, _, name = gone.name.rpartition(".")
    statement = f"from {module} import {name}" if module else f"import {name}"
    source = f"import torch\n{statement}\n\nx = torch.ones(3).cuda()\nprint({name})\n"
    assert may_be_in(source.encode())
    found = [d for d in constructs(run(source)) if d.code.startswith("UPG")]
    assert found
    if not module:
        new = f'import {gone.instead}\n\nx = torch.ones(3).to("jax")\nprint({gone.instead})\n'
        assert not gone.exact or migrated(source) == f"import torch\n{new}"
        return
    new, _, last = gone.instead.rpartition(".")
    if gone.exact and not new:
        assert f"import {last}" in migrated(source)
    if gone.exact and new not in ("", "builtins"):
        text = migrated(source)
        assert f"from {new} import {last}" in text and f"from {module} import {name}\n" not in text


def test_a_file_without_words_of_gpus_is_looked_at() -> None:
    for line in (
        "y = np.float(1)",
        "from collections import (\n    OrderedDict,\n    Mapping,\n)",
        "z = Image.ANTIALIAS",
        "w = scipy.signal.hann(3)",
    ):
        assert may_be_in(f"import numpy as np\n{line}\n".encode())
    for line in (
        "c = yaml.load(open(path).read())",
        "for k, v in d.iteritems():",
        "for i in xrange(3):",
        "make_grid(x, range=(0, 1))  # torch",
        "np.percentile(x, 5, interpolation='lower')",
    ):
        assert old_calls.may_be_in(f"{line}\n".encode())
    for line in ("1 - mask", "1-(x > 0)", "1 - x.eq(0)", "~x.byte()", "x[y / 2]"):
        assert find_old_arithmetic.may_be_in(f"import torch\n{line}\n".encode())
    for line in ("x - 1", "1 - (x + y)", "~mask", "x[y // 2]", "x[y] / 2"):
        assert not find_old_arithmetic.may_be_in(f"import torch\n{line}\n".encode())
    for line in (
        "y = np.float32(1)",
        "from collections.abc import Mapping",
        "x.float()",
        "c = yaml.load(f, Loader=yaml.Loader)",
        "d.items()",
        "for i in range(3):",
    ):
        assert not may_be_in(f"import numpy as np\n{line}\n".encode())
        assert not old_calls.may_be_in(f"import numpy as np\n{line}\n".encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import yaml\ny = yaml.load(open(p).read())",
         "y = yaml.load(open(p).read(), Loader=yaml.FullLoader)"),
        ("from yaml import load\ny = load(f)", "y = load(f, Loader=yaml.FullLoader)"),
        ("import yaml\ny = yaml.load(f, yaml.Loader)", "y = yaml.load(f, yaml.Loader)"),
        ("import yaml\ny = yaml.load(f, Loader=L)", "y = yaml.load(f, Loader=L)"),
        ("y = torch.stft(x, 4)", "y = torch.stft(x, 4, return_complex=False)"),
        ("y = torch.stft(x, 4, return_complex=True)", "y = torch.stft(x, 4, return_complex=True)"),
        ("import scipy.signal as s\ny = s.hann(3)", "y = s.windows.hann(3)"),
        ("from torch._six import container_abcs\ny = container_abcs.Mapping", "y = abc.Mapping"),
        ("from collections import OrderedDict, Mapping\ny = OrderedDict, Mapping",
         "from collections import OrderedDict\nfrom collections.abc import Mapping"),
        ("from torch._six import string_classes\ny = isinstance(x, string_classes)",
         "y = isinstance(x, str)"),
        ("from torch._six import container_abcs, string_classes, int_classes\n"
         "y = (container_abcs.Mapping, string_classes, int_classes)",
         "y = (abc.Mapping, str, int)"),
        ("from itertools import izip, chain\ny = izip(chain(x), x)",
         "from itertools import chain\ny = zip(chain(x), x)"),
        ("import torchvision.transforms.functional_tensor as F_t\ny = F_t.pad",
         "import torchvision.transforms._functional_tensor as F_t\n"),
        ("from itertools import izip as zip\ny = zip(x, x)", "y = zip(x, x)"),
        ("from Queue import Queue\ny = Queue()", "from queue import Queue\n"),
        ("from cPickle import load, dump as d\ny = load, d",
         "from pickle import load, dump as d\n"),
        ("from ConfigParser import ConfigParser, SafeConfigParser as S\ny = ConfigParser, S",
         "from configparser import ConfigParser, ConfigParser as S\n"),
        ("from sklearn.externals.joblib import Parallel\ny = Parallel",
         "from joblib import Parallel\n"),
        ("from scipy.misc import imread, logsumexp, comb\ny = logsumexp(x) + comb(3, 2)",
         "from scipy.special import logsumexp, comb\n"),
        ("from scipy.misc import imread, comb, derivative\ny = comb(3, 2), derivative",
         "from scipy.misc import derivative\n"),
        ("from __builtin__ import str as text, unicode\ny = text(x)", "y = str(x)"),
        ("from PIL import Image\ny = im.resize((3, 3), Image.ANTIALIAS)",
         "y = im.resize((3, 3), Image.LANCZOS)"),
    ],
)  # fmt: skip
def test_it_reads_as_written_by_hand(before: str, after: str) -> None:
    assert after in migrated(f"{HEAD}{before}\n")


@pytest.mark.filterwarnings("ignore")
def test_what_stft_gave_is_asked_for() -> None:
    """PyTorch 2.9 raises without return_complex."""
    signal = torch.randn(2, 64)
    pairs = torch.stft(signal, 16, return_complex=False)
    assert pairs.shape[-1] == 2
    with pytest.raises(RuntimeError, match="return_complex"):
        torch.stft(signal, 16)
    doubtful = "x = torch.complex(a, b).cuda()\ny = torch.stft(x, 4)\n"
    (found,) = [d for d in constructs(run(f"import torch\n{doubtful}")) if d.code == "UPG003"]
    assert "return_complex" in found.message


def test_numbers_stay() -> None:
    for name in ("float", "int", "object", "complex", "str"):
        text = migrated(f"{HEAD}y = np.{name}\n")
        assert text.rstrip().endswith(f"y = {name}")
        assert np.dtype(getattr(builtins, name)) is not None


def test_a_fallback_is_used() -> None:
    source = (
        "import torch\n\ntry:\n    from torch._six import inf\nexcept ImportError:\n"
        "    from math import inf\n\nx = torch.ones(3).cuda() * inf\n"
    )
    assert "from torch._six import inf" in migrated(source)
    assert not [o for o in outcomes(run(source)) if o[1] == "reported"]


def test_a_program_without_a_device_stays() -> None:
    source = "import numpy as np\nimport torch\nimport yaml\nfrom collections import Mapping\n\n"
    source += "x = np.float(torch.ones(1).item()), np.in1d(a, b), yaml.load(f)\n"
    assert migrated(source) == source
    assert {outcome for _, outcome, _ in outcomes(run(source))} <= {"kept"}


def test_a_name_of_the_programs_own_is_not_taken_for_pythons() -> None:
    source = f"{HEAD}float = np.float32\ny = np.float(1)\n"
    assert "y = np.float(1)" in migrated(source)
