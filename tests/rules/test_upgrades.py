"""Calls, methods and meanings of older versions: what replaces them gives the same."""

import argparse
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import cli, constructs, migrated, run, write_tree
from PIL import Image

from migrator import migrate_paths
from migrator.analysis.upgrade_tables import removed_builtins, removed_methods
from migrator.diagnostics import Outcome

HEAD = "import numpy as np\nimport torch\n\nx = torch.ones(3).cuda()\n"
SIGNAL = torch.randn(2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
COMPLEX = torch.stack([SIGNAL, SIGNAL.flip(0)], -1)
SYMMETRIC = torch.tensor([[4.0, 1, 0], [1, 3, 2], [0, 2, 5]], dtype=torch.float64)
NUMBERS = torch.tensor([[1.0, 2], [0, 1], [5, 3]], dtype=torch.float64)
AS_NUMPY = SYMMETRIC.numpy()


def upgraded(line: str, head: str = HEAD) -> str:
    """What a line becomes."""
    return migrated(f"{head}{line}\n").rstrip().rpartition("\n")[2]


def value(line: str, **names: Any) -> Any:
    """The value that a line assigns to y once it is upgraded."""
    scope: dict[str, Any] = {"torch": torch, "np": np, **names}
    exec(upgraded(line), scope)
    return scope["y"]


def pairs(result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.stack([result.real, result.imag], -1)


def joined(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor[..., 0].numpy() + 1j * tensor[..., 1].numpy()


TRANSFORMS = {
    # What PyTorch 1.7's documentation says of them, by NumPy.
    "y = torch.rfft(s, 1)": pairs(np.fft.rfft(SIGNAL)),
    "y = torch.rfft(s, 2, onesided=False)": pairs(np.fft.fft2(SIGNAL)),
    "y = torch.rfft(s, 2, True)": pairs(np.fft.rfft2(SIGNAL, norm="ortho")),
    "y = torch.rfft(s, signal_ndim=3, normalized=False)": pairs(np.fft.rfftn(SIGNAL)),
    "y = s.rfft(2)": pairs(np.fft.rfft2(SIGNAL)),
    "y = torch.irfft(c, 1)": np.fft.irfft(joined(COMPLEX)),
    "y = torch.irfft(c, 2, onesided=False)": np.fft.ifft2(joined(COMPLEX)).real,
    "y = torch.irfft(c, 2, signal_sizes=(6, 13))": np.fft.irfft2(joined(COMPLEX), s=(6, 13)),
    "y = torch.irfft(c, 2, True, True)": np.fft.irfft2(joined(COMPLEX), norm="ortho"),
    "y = torch.fft(c, 2)": pairs(np.fft.fft2(joined(COMPLEX))),
    "y = torch.ifft(c, 1, normalized=True)": pairs(np.fft.ifft(joined(COMPLEX), norm="ortho")),
}


@pytest.mark.parametrize("line", TRANSFORMS)
def test_a_transform_gives_what_it_gave(line: str) -> None:
    found = value(line, s=SIGNAL, c=COMPLEX).numpy()
    np.testing.assert_allclose(found, TRANSFORMS[line], atol=1e-12)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = torch.symeig(a, eigenvectors=True)[0]", np.linalg.eigvalsh(AS_NUMPY)),
        ("y = torch.symeig(a).eigenvalues", np.linalg.eigvalsh(AS_NUMPY)),
        ("y = torch.symeig(torch.triu(a), True)[0]", np.linalg.eigvalsh(AS_NUMPY)),
        ("y = torch.symeig(torch.tril(a), True, False)[0]", np.linalg.eigvalsh(AS_NUMPY)),
        ("y = a.symeig()[0]", np.linalg.eigvalsh(AS_NUMPY)),
        ("y = torch.matrix_rank(a)", 3),
        ("y = torch.matrix_rank(a, 4.0, symmetric=True)", 2),
        ("y = torch.solve(b, a)[0]", np.linalg.solve(AS_NUMPY, NUMBERS.numpy())),
        ("y = torch.solve(b, a).solution", np.linalg.solve(AS_NUMPY, NUMBERS.numpy())),
        ("y = torch.gesv(b, a)[0]", np.linalg.solve(AS_NUMPY, NUMBERS.numpy())),
        ("y = torch.potrf(a)", np.linalg.cholesky(AS_NUMPY).T),
        ("y = torch.potrf(a, upper=False)", np.linalg.cholesky(AS_NUMPY)),
        ("y = torch.potrs(b, torch.potrf(a))", np.linalg.solve(AS_NUMPY, NUMBERS.numpy())),
        ("y = torch.potri(torch.potrf(a))", np.linalg.inv(AS_NUMPY)),
        ("y = torch.trtrs(b, torch.triu(a))[0]",
         np.linalg.solve(np.triu(AS_NUMPY), NUMBERS.numpy())),
        ("y = torch.btrisolve(b, *torch.btrifact(a))", np.linalg.solve(AS_NUMPY, NUMBERS.numpy())),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_linear_algebra_gives_what_it_gave(line: str, expected: object) -> None:
    np.testing.assert_allclose(value(line, a=SYMMETRIC, b=NUMBERS).numpy(), expected)


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.rfft(s, n)",
        "y = torch.rfft(s, 2, *options)",
        "y = torch.irfft(c, 2, onesided=False, signal_sizes=sizes)",
        "y = torch.symeig(a, eigenvectors=True, upper=upper)",
        "y = torch.solve(b, a)",
        "y = torch.solve(make(), other())[0]",
        "y = torch.eig(a)",
        "y = torch.lstsq(b, a)",
        "y = map(torch.symeig, matrices)",
    ],
)
def test_what_a_call_does_not_show_is_reported(line: str) -> None:
    assert upgraded(line) == line
    found = [d for d in constructs(run(f"{HEAD}{line}\n")) if d.code.startswith("UPG")]
    assert [str(d.outcome) for d in found] == ["reported"]


EXACT: Mapping[str, tuple[str, object]] = {
    "y = np.asfarray([1, 2])": ("y = np.asarray([1, 2], dtype=float)", [1.0, 2.0]),
    "y = np.asscalar(np.ones(1))": ("y = np.ones(1).item()", 1.0),
    "y = np.msort(np.array([[3], [1]]))": ("y = np.sort(np.array([[3], [1]]), axis=0)", [[1], [3]]),
    "y = np.in1d([[1, 2]], [2])": ("y = np.isin(np.ravel([[1, 2]]), [2])", [False, True]),
    "y = 2 ** np.NINF": ("y = 2 ** (-np.inf)", 0.0),
    "y = np.percentile([1, 2], 50, interpolation='lower')":
        ("y = np.percentile([1, 2], 50, method='lower')", 1),
    "y = np.trapz([1, 2, 3])": ("y = np.trapezoid([1, 2, 3])", 4.0),
    "y = np.ones(3).ptp()": ("y = np.ptp(np.ones(3))", 0.0),
    "y = np.array([1], copy=False)": ("y = np.asarray([1])", [1]),
    "y = np.array([1], 'f', copy=False)": ("y = np.asarray([1], 'f')", [1.0]),
    "y = np.ones(1, 'b').tostring()": ("y = np.ones(1, 'b').tobytes()", b"\1"),
    "y = list({1: 2}.iteritems())": ("y = list({1: 2}.items())", [(1, 2)]),
    "y = {1: 2}.has_key(1)": ("y = 1 in {1: 2}", True),
    "y = iter([5]).next()": ("y = next(iter([5]))", 5),
    "y = list(xrange(2))": ("y = list(range(2))", [0, 1]),
    "y = torch.ones(2).masked_fill(torch.ones(2).byte(), 3)":
        ("y = torch.ones(2).masked_fill(torch.ones(2).bool(), 3)", [3, 3]),
}  # fmt: skip


@pytest.mark.parametrize("line", EXACT)
def test_other_calls_give_what_they_gave(line: str) -> None:
    text, expected = EXACT[line]
    assert upgraded(line) == text
    np.testing.assert_array_equal(value(line), expected)


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        ("import cPickle as pickle\ny = pickle.dumps(1)", "import pickle\n"),
        ("import cPickle\ny = cPickle.dumps(1)", "y = pickle.dumps(1)"),
        ("import Queue as q\ny = q.Queue()", "import queue as q\n"),
        ("from itertools import izip\ny = izip(a, b)", "y = zip(a, b)"),
        ("from functools import partial\ny = reduce(f, a)", "y = functools.reduce(f, a)"),
        ("m = x > 0\nmask = torch.zeros(3, dtype=torch.uint8)\ny = x.masked_select(mask)",
         "y = x.masked_select(mask.bool())"),
        ("loss = f(x)\nloss.backward()\ny = loss.data[0]", "y = loss.item()"),
        ("y = scores.data[0]", "y = scores.data[0]"),
        ("model = torch.load(path, map_location='cpu')\nmodel.eval()",
         "torch.load(path, map_location='cpu', weights_only=False)"),
        ("args = parser.parse_args()\ntorch.save({'net': net, 'args': args}, p)\n"
         "y = torch.load(p, map_location='cpu')",
         "torch.load(p, map_location='cpu', weights_only=False)"),
        ("torch.save({'net': net.state_dict()}, p)\ny = torch.load(p, map_location='cpu')",
         "torch.load(p, map_location='cpu')\n"),
        ("y = torch.load(p, map_location='cpu')\nnet.load_state_dict(y['net'])",
         "torch.load(p, map_location='cpu')\n"),
        ("y = torch.load(p, map_location='cpu', weights_only=True).eval()", "weights_only=True)"),
        ("model = torch.load(path)\nmodel.eval()", "= tpu_runtime.load(path, weights_only=False)"),
        ("model = torch.load(path)\ny = model(x)", "= tpu_runtime.load(path, weights_only=False)"),
        ("model = torch.load(path, map_location='cuda')\nmodel.eval()",
         "tpu_runtime.load(path, map_location='jax', weights_only=False)"),
        ("model = torch.load(path, map_location=lambda s, l: s)\nmodel.eval()",
         'torch.load(path, map_location="cpu", weights_only=False)'),
        ("net = Net()\nnet.eval()\ntorch.save(net, 'a')\ny = torch.load('a')",
         "tpu_runtime.load('a', weights_only=False)"),
        ("def f(net, x):\n    return net(x)\nmodel = torch.load(path)\ny = f(model, x)",
         "model = tpu_runtime.load(path, weights_only=False)"),
        ("def f(a, x):\n    return a['w'] + x\nw = torch.load(path)\ny = f(w, x)",
         "w = tpu_runtime.load(path)\n"),
        ("torch.save(net, 'a')\ny = torch.load('a')", "y = tpu_runtime.load('a')\n"),
        ("args = parser.parse_args()\ntorch.save({'net': net, 'args': args}, p)\n"
         "net.load_state_dict(torch.load(p)['net'])",
         "torch.load(p, map_location='cpu', weights_only=False)"),
        ("model = torch.load(path)  # tpu-migrate: ignore[IOS001]\nmodel.eval()",
         "model = torch.load(path)  # tpu-migrate"),
        ("model = torch.load(path)  # tpu-migrate: ignore[UPG]\nmodel.eval()",
         "model = tpu_runtime.load(path)  # tpu-migrate"),
        ("y = np.math.factorial(3)", "y = math.factorial(3)"),
        ("y = isinstance(x, (float, int, long))", "y = isinstance(x, (float, int))"),
        ("y = isinstance(x, (str, unicode))", "y = isinstance(x, str)"),
        ("y = isinstance(x, (unicode, basestring, list))", "y = isinstance(x, (str, list))"),
        ("y = isinstance(x, (int, np.int, np.float, np.int32))",
         "y = isinstance(x, (int, float, np.int32))"),
        ("y = type(x) in [int, long]", "y = type(x) in [int]"),
        ("y = type(x) in {int, long, float}", "y = type(x) in {int, float}"),
        ("y = type(x) in (int, long)", "y = type(x) in (int,)"),
        ("types = (int, long)", "types = (int, int)"),  # whose length may matter
        ("y = isinstance(x, (int,\n    long))", "y = isinstance(x, (int,\n    int))"),
        ("y = prefetcher.next()", "y = prefetcher.next()"),
        ("y = rotation.as_matrix()", "y = rotation.as_matrix()"),  # of SciPy, not of pandas
        ("y = torch.nn.functional.dropout(x).data[0]", ".data[0]"),
    ],
)  # fmt: skip
def test_it_reads_as_written_by_hand(lines: str, after: str) -> None:
    assert after in migrated(f"{HEAD}{lines}\n")


@pytest.mark.parametrize(
    "lines",
    [
        "try:\n    xrange\nexcept NameError:\n    xrange = range\ny = xrange(3)",
        "if sys.version_info[0] < 3:\n    y = d.iteritems()\nelse:\n    y = d.items()",
        "if six.PY2:\n    y = unicode(s)",
        "if torch.__version__ < '1.8':\n    y = torch.rfft(x, 2)",
        "if TORCH_VERSION < (1, 8):\n    y = torch.symeig(x)",
        "y = np.float(1) if hasattr(np, 'float') else float(1)",
        "try:\n    y = np.float(1)\nexcept AttributeError:\n    y = 1.0",
        "def long(a):\n    return a\ny = long(x)",
        "y = unicode if str is bytes else str  # tpu-migrate: ignore[LIB010]",
        "y = d.iteritems()  # tpu-migrate: ignore[UPG]",
    ],
)
def test_a_program_that_knows_stays(lines: str) -> None:
    source = f"import sys, six\n{HEAD}{lines}\n"
    text = migrated(source).replace("'jax'", '"jax"')
    assert text == source.replace(".cuda()", '.to("jax")')
    assert not [d for d in constructs(run(source)) if str(d.outcome) == "reported"]


def test_a_class_of_the_project_keeps_its_methods() -> None:
    source = f"class Table:\n    def iteritems(self):\n        pass\n\n{HEAD}y = t.iteritems()\n"
    assert "y = t.iteritems()" in migrated(source)


# ---- methods and names of Python 2 ---------------------------------------------------------------


def test_methods_are_gone() -> None:
    objects = [{}, np.zeros(2), iter([1]), SYMMETRIC, Image.new("L", (2, 2))]
    for name in removed_methods():
        assert not any(hasattr(o, name) for o in objects) or name == "symeig", name
    with pytest.raises(RuntimeError, match=r"torch\.linalg\.eigh"):
        SYMMETRIC.symeig()
    assert not set(removed_builtins()) & set(dir(__builtins__))


def test_changed_meanings_are_refused() -> None:
    with pytest.raises(IndexError, match="item"):
        torch.ones(2).sum().data[0]
    with pytest.raises(RuntimeError, match="boolean masks"):
        torch.ones(2).masked_fill(torch.ones(2, dtype=torch.uint8), 0)
    with pytest.raises(ValueError, match="asarray"):
        np.array([1], copy=False)
    with pytest.raises(ValueError, match="frombuffer"):
        np.fromstring(b"ab", dtype=np.uint8)


def test_a_checkpoint_with_more_than_tensors_is_refused_and_loads_as_before(tmp_path: Path) -> None:
    saved = {"w": torch.ones(2), "args": argparse.Namespace(lr=0.1)}
    torch.save(saved, tmp_path / "a.pth")
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        torch.load(tmp_path / "a.pth")
    assert torch.load(tmp_path / "a.pth", weights_only=False)["args"] == saved["args"]


def test_an_import_that_stays_is_reported() -> None:
    line = "from tensorflow.examples.tutorials.mnist import input_data"
    text = f"{HEAD}{line}\nprint(input_data)\n"
    assert line in migrated(text)
    found = [d for d in constructs(run(text)) if d.code.startswith("UPG")]
    assert [str(d.outcome) for d in found] == ["reported"]


def test_async_says_what_it_is_now() -> None:
    result = run("import torch\nx = x.cuda(async=True)\n", ignore=("UPG",))
    assert "the argument is non_blocking" in result.diagnostics[0].message


# ---- settings ------------------------------------------------------------------------------------


def test_ignoring_the_family_leaves_all(tmp_path: Path) -> None:
    source = f"{HEAD}a = np.float(1), {{}}.iteritems(), torch.rfft(x, 2), np.array(x, copy=False)\n"
    for code in ("UPG", "LIB010"):
        assert migrated(source, ignore=("UPG",)).count("a = np.float(1), {}.iteritems()") == 1
        root = write_tree(tmp_path / code, {"train.py": source})
        done = cli(".", "--target", "torchax", "--ignore", code, "--diff", cwd=root)
        assert "-x = torch.ones" in done.stdout.decode() and "iteritems()" not in re.sub(
            r"(?m)^ .*\n", "", done.stdout.decode()
        )


def test_the_inventory_counts_upgrades_beside_constructs_of_gpus(tmp_path: Path) -> None:
    source = f"{HEAD}y = np.float(1)\nz = np.load(np.who())\n"
    root = write_tree(tmp_path, {"train.py": source})
    done = cli(".", "--target", "torchax", "--check", cwd=root).stdout.decode()
    assert "1 GPU construct and 2 upgrades: 2 rewritten, 1 reported (67%" in done


# ---- requirements --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("transformers==4.37.0", "far below 5.24"),
        ("accelerate==0.20.3", "far below 1.15"),
        ("pandas<1.4", "takes pandas>=2.2.2"),
        ("scikit-learn==0.24.1", "takes scikit-learn>=1.4.2"),
        ("numba==0.53", "takes numba>=0.60"),
        ("transformers>=4.30", ""),
        ("transformers<5", ""),
        ("diffusers==0.40", ""),
        ("pandas>=1.0", ""),
    ],
)
def test_requirements_of_older_versions_are_reported(line: str, said: str, tmp_path: Path) -> None:
    files = {"requirements.txt": f"torch\n{line}\n", "train.py": HEAD}
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    found = [d.message for _, d in report.diagnostics(Outcome.REPORTED)]
    assert len(found) == bool(said) and all(said in message for message in found)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("plt.style.use('seaborn-whitegrid')", "plt.style.use('seaborn-v0_8-whitegrid')"),
        ('plt.style.use(["ggplot", "seaborn"])', 'plt.style.use(["ggplot", "seaborn-v0_8"])'),
        ('plt.style.use("seaborn-v0_8-dark")', 'plt.style.use("seaborn-v0_8-dark")'),
        ('plt.style.use("ggplot")', 'plt.style.use("ggplot")'),
        ('seaborn.style.use("seaborn")', 'seaborn.style.use("seaborn")'),
    ],
)
def test_styles_of_seaborn_have_the_names_of_matplotlib_3_8(line: str, after: str) -> None:
    assert upgraded(line, HEAD + "import matplotlib.pyplot as plt\n") == after
