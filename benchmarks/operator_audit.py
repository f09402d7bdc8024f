"""Every operator of torch's OpInfo database on torchax against CPU torch: values and gradients.

Run in the torchax environment (the two runs, stock torchax and ours, take about an hour of one
core together):

    JAX_PLATFORMS=cpu PYTHON benchmarks/operator_audit.py --jobs 1

It writes docs/operators-torchax.md, and the raw results to --results, which a later call reuses for
operators that it is not told to run again (``--only NAME ...``, ``--kind ours``). Operators run in
processes of some forty, and one that crashes its process is noted and left out of the next.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("stock", "ours")
CHUNK = 40
SECONDS_PER_SAMPLE = 60
# float32, relative to the value itself and to the largest of the tensor: an operator that is right
# differs by some roundings, a wrong one by its values. Gradients carry one more operator's.
RELATIVE = {"values": 1e-3, "gradients": 3e-3}
TO_LARGEST = 2e-4
LEAST = {"values": 1e-5, "gradients": 5e-4}  # where the true value is 0 of inputs of about 1
# Their results are random: they are compared by their own tests.
RANDOM = (
    "dropout", "rrelu", "bernoulli", "normal", "multinomial", "uniform", "exponential", "cauchy",
    "geometric", "rand", "svd_lowrank", "pca_lowrank", "multi_head_attention",
)  # fmt: skip
UNDEFINED = ("empty", "new_empty")  # memory without values
ORDER = ("right", "raises", "timeout", "crash", "no gradient", "wrong gradient", "wrong values")


HEAD = """# Operators on torchax

Made by `benchmarks/operator_audit.py`: each operator of torch's OpInfo database that has float32
and is not random, values and gradients against CPU torch, on JAX's CPU back end. An operator counts
as its worst sample; `wrong` and `no gradient` are silent.
"""


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def _stand_in(needed: str, module: str, **attributes: Any) -> None:
    """Let torch's test helpers import ``module``, which OpInfo does not use, without ``needed``."""
    if importlib.util.find_spec(needed) is None:
        made = types.ModuleType(module)
        made.__dict__.update(attributes)
        sys.modules[module] = made


@cache
def operators() -> list[Any]:
    """The OpInfos that are compared: those of float32 with a result that is no matter of chance."""
    import torch

    _stand_in("expecttest", "expecttest", TestCase=unittest.TestCase)
    _stand_in("setuptools", "torch.utils.cpp_extension")
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        op
        for op in op_db
        if torch.float32 in op.dtypes
        and not op.name.startswith(UNDEFINED)
        and not any(word in op.name for word in RANDOM if op.name != "nn.functional.normalize")
    ]


def _tensors(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _weights(shape: Any, number: int) -> Any:
    """What an output is multiplied by before it is summed, so that its elements count apart."""
    import torch

    places = torch.arange(torch.Size(shape).numel(), dtype=torch.float32)
    return (torch.cos(places * 1.3 + number) + 0.5).reshape(shape)


def _numpy(tensor: Any) -> Any:
    import numpy as np
    import torch

    if hasattr(tensor, "jax"):
        array = np.asarray(tensor.jax())
        return array.astype(np.float32) if tensor.dtype == torch.bfloat16 else array
    tensor = tensor.detach().resolve_conj()
    if tensor._is_zerotensor():  # a gradient of zeros without memory
        tensor = torch.zeros_like(tensor)
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def differs(result: Any, expected: Any, what: str) -> str:
    """Why ``result`` is not ``expected``, or the empty string."""
    import numpy as np

    if result.shape != expected.shape:
        return f"shape {result.shape} instead of {expected.shape}"
    if expected.size == 0:
        return ""
    if not np.issubdtype(expected.dtype, np.inexact):
        return "" if np.array_equal(result, expected) else "other integers"
    finite = np.isfinite(expected)
    largest = float(np.abs(expected[finite]).max()) if finite.any() else 0.0
    near = TO_LARGEST * largest + LEAST[what]
    if np.allclose(result, expected, rtol=RELATIVE[what], atol=near, equal_nan=True):
        return ""
    if not np.array_equal(np.isfinite(result), finite):
        return "not finite in other places"
    with np.errstate(all="ignore"):
        off = np.nanmax(np.abs(result - expected))
    return f"off by {off:.2g} of {largest:.2g}"


class Sample:
    """One call of an operator, and what CPU torch gives for it."""

    def __init__(self, op: Any, sample: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        self.op = op
        self.without_choice = sample.output_process_fn_grad  # as abs() of eigenvectors
        if sample.kwargs.get("dropout_p"):
            raise ValueError("a matter of chance")
        call = ((sample.input, *sample.args), dict(sample.kwargs))
        self.leaves, self.spec = pytree.tree_flatten(call)
        own = [
            leaf.detach().clone().requires_grad_(leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in self.leaves
        ]
        args, kwargs = pytree.tree_unflatten(own, self.spec)
        self.wanted = _tensors(self.without_choice(op.op(*args, **kwargs)))
        if any(tensor.layout is not torch.strided for tensor in (*self.wanted, *_tensors(own))):
            raise TypeError("a sparse tensor")
        self.inputs = [
            n for n, leaf in enumerate(own) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        self.outputs = [
            n for n, t in enumerate(self.wanted) if t.requires_grad and t.dtype == torch.float32
        ]
        self.gradients = self._gradients(own, self.wanted, lambda t: t)

    def _gradients(self, leaves: list[Any], outputs: list[Any], move: Any) -> Any:
        import torch

        if not self.outputs:
            return []
        loss = sum((outputs[n] * move(_weights(outputs[n].shape, n))).sum() for n in self.outputs)
        inputs = [leaves[n] for n in self.inputs]
        return torch.autograd.grad(loss, inputs, allow_unused=True)

    def judge(self, env: Any) -> tuple[str, str]:
        """(verdict, explanation) of the same call on the device."""
        import torch
        from torch.utils import _pytree as pytree

        own: list[Any] = []
        for leaf in self.leaves:
            if isinstance(leaf, torch.Tensor):
                moved = env.to_xla(leaf.detach().clone())
                own.append(moved.requires_grad_() if leaf.requires_grad else moved)
            else:
                own.append(torch.device("jax") if isinstance(leaf, torch.device) else leaf)
        args, kwargs = pytree.tree_unflatten(own, self.spec)
        if "device" in kwargs:
            kwargs["device"] = "jax"
        results = _tensors(self.without_choice(self.op.op(*args, **kwargs)))
        if len(results) != len(self.wanted):
            return "wrong values", f"{len(results)} results instead of {len(self.wanted)}"
        for result, expected in zip(results, self.wanted, strict=True):
            if why := differs(_numpy(result), _numpy(expected), "values"):
                return "wrong values", why
        if not all(results[n].requires_grad for n in self.outputs):
            return "no gradient", "the result does not require grad"
        gradients = self._gradients(own, results, env.to_xla)
        for gradient, expected in zip(gradients, self.gradients, strict=True):
            if gradient is None and expected is None:
                continue
            if gradient is None or expected is None:
                other = expected if gradient is None else gradient
                if abs(_numpy(other)).max(initial=0) > 0:
                    return "wrong gradient", "None instead of values, or values instead of None"
            elif why := differs(_numpy(gradient), _numpy(expected), "gradients"):
                return "wrong gradient", why
        return "right", ""


def samples_of(op: Any, most: int) -> Iterator[Sample]:
    """At most ``most`` samples, evenly spread over those that CPU torch can compute."""
    import itertools

    import torch

    torch.manual_seed(0)
    made = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    samples = list(itertools.islice(made, most * 6))
    step = max(1, len(samples) // most)
    for sample in samples[::step][:most]:
        try:
            yield Sample(op, sample)
        except Exception:
            continue  # what CPU torch itself cannot do is not compared


def audit(op: Any, env: Any, most: int) -> dict[str, Any]:
    """The worst verdict of the operator's samples, how many had which, and an explanation."""
    found: Counter[str] = Counter()
    why: dict[str, str] = {}

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    for sample in samples_of(op, most):
        signal.alarm(SECONDS_PER_SAMPLE)
        try:
            with env:
                verdict, text = sample.judge(env)
        except TimeoutError:
            verdict, text = "timeout", f"more than {SECONDS_PER_SAMPLE} s"
        except Exception as error:  # whatever an operator raises is its verdict
            verdict, text = "raises", f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        found[verdict] += 1
        why.setdefault(verdict, " ".join(text.split())[:300])
    if not found:
        return {"verdict": "no sample", "counts": {}, "why": ""}
    worst = max(found, key=ORDER.index)
    return {"verdict": worst, "counts": dict(found), "why": why[worst]}


def work(kind: str, names: list[str], most: int) -> None:
    """In a process of its own: one JSON line before and after each operator."""
    import logging

    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if kind == "ours":
        sys.path.insert(0, str(ROOT / "migrator" / "runtime" / "torchax"))
        import tpu_runtime

        tpu_runtime.setup()
    import torchax

    env = torchax.default_env()
    by_name = {name_of(op): op for op in operators()}
    for name in names:
        print(json.dumps({"start": name}), flush=True)
        print(json.dumps({"name": name, **audit(by_name[name], env, most)}), flush=True)


def run_chunk(kind: str, names: list[str], most: int, results: dict[str, Any]) -> None:
    """Audit ``names`` in processes until all are done or noted as crashed."""
    left = list(names)
    while left:
        command = [sys.executable, __file__, "--worker", kind, "--samples", str(most)]
        done = subprocess.run([*command, "--only", *left], capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for line in lines:
            if "name" in line:
                results[line.pop("name")] = line
        started = [line["start"] for line in lines if "start" in line]
        if done.returncode == 0:
            return
        if not started:
            raise RuntimeError(f"the worker cannot start: {done.stderr[-2000:]}")
        why = f"exit status {done.returncode}"
        results[started[-1]] = {"verdict": "crash", "counts": {}, "why": why}
        left = left[left.index(started[-1]) + 1 :]


def table(results: dict[str, dict[str, Any]]) -> str:
    """The page for the docs."""
    current = {name_of(op) for op in operators()}
    results = {kind: {n: r for n, r in results[kind].items() if n in current} for kind in KINDS}
    names = sorted(set(results["stock"]) | set(results["ours"]))
    rows = ["| verdict | stock torchax 0.0.13 | with tpu_runtime |", "|---|---|---|"]
    for verdict in ORDER:
        counts = [sum(r["verdict"] == verdict for r in results[kind].values()) for kind in KINDS]
        rows.append(f"| {verdict} | {counts[0]} | {counts[1]} |")
    lines = [HEAD, *rows, "\n## Not right, with tpu_runtime\n"]
    lines += ["| operator | samples | what |", "|---|---|---|"]
    for name in names:
        ours = results["ours"].get(name)
        if ours and ours["verdict"] not in ("right", "no sample"):
            counts = ", ".join(f"{n} {v}" for v, n in ours["counts"].items())
            text = ours["why"].replace("|", "\\|").replace("<", "&lt;")[:160]
            lines.append(f"| {name} | {counts or 'crash'} | {text} |")
    lines += ["\n## All\n", "| operator | stock | with tpu_runtime |", "|---|---|---|"]
    for name in names:
        pair = [results[kind].get(name, {}).get("verdict", "") for kind in KINDS]
        lines.append(f"| {name} | {pair[0]} | {pair[1]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help="names of operators")
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("operator_audit.json"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "operators-torchax.md")
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.only, options.samples)
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    names = [name_of(op) for op in operators()]
    if options.only:
        names = [name for name in names if name in options.only]
    chunks = [names[n : n + CHUNK] for n in range(0, len(names), CHUNK)]
    for kind in options.kind:
        results = known.setdefault(kind, {})
        with ThreadPoolExecutor(options.jobs) as pool:
            for _ in pool.map(lambda c: run_chunk(kind, c, options.samples, results), chunks):  # noqa: B023
                options.results.write_text(json.dumps(known, indent=1))
                print(kind, Counter(r["verdict"] for r in results.values()), flush=True)
    if all(kind in known for kind in KINDS):
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(table(known))


if __name__ == "__main__":
    main()
