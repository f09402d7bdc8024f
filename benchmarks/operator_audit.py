"""Operators and forms of code on a target against CPU torch: values and gradients.

Operators are those of torch's OpInfo database, forms those of forms.py. Run in the environment of
the target (the two runs, stock and ours, take about an hour of one core together):

    PYTHON benchmarks/operator_audit.py --target torchax --jobs 1

It writes docs/operators-TARGET.md, and the raw results to --results, which a later call reuses for
what it is not told to run again (``--only NAME ...``, ``--kind ours``). Cases run in processes of
some forty, and one that crashes its process is noted and left out of the next.
"""

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import forms

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("stock", "ours")
CHUNK = 40
SECONDS_PER_SAMPLE = 60
# float32, relative to the value itself and to the largest of the tensor: an operator that is right
# differs by some roundings, a wrong one by its values. Gradients carry one more operator's.
RELATIVE = {"values": 1e-3, "gradients": 3e-3}
TO_LARGEST = 2e-4
LEAST = {"values": 1e-5, "gradients": 5e-4}  # where the true value is 0 of inputs of about 1
WIDER = {"float64": 1e-4, "float16": 10, "bfloat16": 20}  # other dtypes: times this
# Their results are random: they are compared by their own tests.
RANDOM = (
    "dropout", "rrelu", "bernoulli", "normal", "multinomial", "uniform", "exponential", "cauchy",
    "geometric", "rand", "svd_lowrank", "pca_lowrank", "multi_head_attention",
)  # fmt: skip
UNDEFINED = ("empty", "new_empty")  # memory without values
ORDER = (
    "right", "raises", "timeout", "crash", "does not raise", "no gradient", "wrong gradient",
    "wrong values",
)  # fmt: skip


HEAD = """# Operators on {library}

Made by `benchmarks/operator_audit.py`: each operator of torch's OpInfo database that has float32
and is not random, and each form of `benchmarks/forms.py`: values and gradients against CPU torch,
on {back_end}. What counts is the worst sample. `wrong`, `no gradient` and `does not raise` (where
torch does) are silent.
"""


@dataclass(frozen=True)
class Device:
    """The device of a target, in a process that has started it."""

    word: str
    move: Callable[[Any], Any]
    context: contextlib.AbstractContextManager[Any]
    compute: Callable[[], object]  # what is recorded
    narrowed: dict[Any, Any] = field(default_factory=dict)  # dtypes that it has not, and the others


def torchax() -> Device:
    import torch
    import torchax

    environment = torchax.default_env()
    narrowed = {
        torch.int64: torch.int32,
        torch.float64: torch.float32,
        torch.complex128: torch.complex64,
    }
    return Device("jax", environment.to_xla, environment, lambda: None, narrowed)


def torch_xla() -> Device:
    import torch
    import torch_xla

    torch.zeros(1, device=torch_xla.device())  # before a backward on the CPU, else later ones raise
    return Device("xla", lambda tensor: tensor.to("xla"), contextlib.nullcontext(), torch_xla.sync)


@dataclass(frozen=True)
class Target:
    start: Callable[[], Device]
    back_end: str
    variables: dict[str, str]


TARGETS = {
    "torchax": Target(torchax, "JAX's CPU back end", {"JAX_PLATFORMS": "cpu"}),
    "torch_xla": Target(torch_xla, "XLA's CPU back end", {"PJRT_DEVICE": "CPU"}),
}


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def _stand_in(needed: str, module: str, **attributes: Any) -> None:
    """Let torch's test helpers import ``module``, which OpInfo does not use, without ``needed``."""
    if importlib.util.find_spec(needed) is None:
        made = types.ModuleType(module)
        made.__dict__.update(attributes)
        sys.modules[module] = made


@cache
def operators() -> dict[str, Any]:
    """The OpInfos that are compared: those of float32 with a result that is no matter of chance."""
    import torch

    _stand_in("expecttest", "expecttest", TestCase=unittest.TestCase)
    _stand_in("setuptools", "torch.utils.cpp_extension")
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        name_of(op): op
        for op in op_db
        if torch.float32 in op.dtypes
        and not op.name.startswith(UNDEFINED)
        and not any(word in op.name for word in RANDOM if op.name != "nn.functional.normalize")
    }


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
    tensor = tensor.detach()
    if tensor._is_zerotensor():  # a gradient of zeros without memory
        tensor = torch.zeros_like(tensor)
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def differs(result: Any, expected: Any, what: str, wider: float = 1) -> str:
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
    near = wider * (TO_LARGEST * largest + LEAST[what])
    if np.allclose(result, expected, rtol=RELATIVE[what] * wider, atol=near, equal_nan=True):
        return ""
    if not np.array_equal(np.isfinite(result), finite):
        return "not finite in other places"
    with np.errstate(all="ignore"):
        off = np.nanmax(np.abs(result - expected))
    return f"off by {off:.2g} of {largest:.2g}"


def tensor_differs(result: Any, expected: Any, what: str, narrowed: dict[Any, Any]) -> str:
    dtype = narrowed.get(expected.dtype, expected.dtype)
    if result.dtype != dtype:
        return f"{result.dtype} instead of {dtype}"
    wider = WIDER.get(str(dtype).removeprefix("torch."), 1)
    return differs(_numpy(result), _numpy(expected), what, wider)


class Sample:
    """Something that is computed of tensors, and what CPU torch gives for it.

    ``compute`` gets the leaves and the word of a device, or None, and returns tensors. Where torch
    raises, so must a target: else it would be silent.
    """

    def __init__(
        self, compute: Callable[[list[Any], Any], list[Any]], leaves: list[Any], label: str = ""
    ) -> None:
        import torch

        self.compute = compute
        self.leaves = leaves
        self.label = label
        self.error: Exception | None = None
        own = self._own(lambda tensor: tensor)
        try:
            self.wanted = compute(own, None)
        except Exception as error:
            self.error = error
            return
        if any(tensor.layout is not torch.strided for tensor in (*self.wanted, *_tensors(own))):
            raise TypeError("a sparse tensor")
        self.inputs = [
            n for n, leaf in enumerate(own) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        self.outputs = [
            n for n, t in enumerate(self.wanted) if t.requires_grad and t.is_floating_point()
        ]
        try:
            self.gradients = self._gradients(own, self.wanted, lambda t: t)
        except RuntimeError:  # torch itself can not: values are compared alone
            self.outputs = []
            self.gradients = []

    def _own(self, move: Any) -> list[Any]:
        """The leaves, those that are tensors as own ones where they are moved to."""
        import torch

        return [
            move(leaf.detach().clone()).requires_grad_(leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in self.leaves
        ]

    def _gradients(self, leaves: list[Any], outputs: list[Any], move: Any) -> Any:
        import torch

        if not self.outputs:
            return []
        loss = sum((outputs[n] * move(_weights(outputs[n].shape, n))).sum() for n in self.outputs)
        inputs = [leaves[n] for n in self.inputs]
        return torch.autograd.grad(loss, inputs, allow_unused=True)

    def judge(self, device: Device) -> tuple[str, str]:
        """(verdict, explanation) of the same on the device."""
        own = self._own(device.move)
        device.compute()  # the leaves are no constants of a program
        if self.error is not None:
            try:
                for result in self.compute(own, device.word):
                    _numpy(result)
            except Exception:
                return "right", ""
            return "does not raise", f"torch: {type(self.error).__name__}: {self.error}"
        results = self.compute(own, device.word)
        device.compute()
        if len(results) != len(self.wanted):
            return "wrong values", f"{len(results)} results instead of {len(self.wanted)}"
        for result, expected in zip(results, self.wanted, strict=True):
            if why := tensor_differs(result, expected, "values", device.narrowed):
                return "wrong values", why
        if not all(results[n].requires_grad for n in self.outputs):
            return "no gradient", "the result does not require grad"
        gradients = self._gradients(own, results, device.move)
        device.compute()
        for gradient, expected in zip(gradients, self.gradients, strict=True):
            if gradient is None and expected is None:
                continue
            if gradient is None or expected is None:
                other = expected if gradient is None else gradient
                if abs(_numpy(other)).max(initial=0) > 0:
                    return "wrong gradient", "None instead of values, or values instead of None"
            elif why := tensor_differs(gradient, expected, "gradients", device.narrowed):
                return "wrong gradient", why
        return "right", ""


def _sample_of_operator(op: Any, sample: Any) -> Sample:
    import torch
    from torch.utils import _pytree as pytree

    if sample.kwargs.get("dropout_p"):
        raise ValueError("a matter of chance")
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))

    def compute(own: list[Any], word: str | None) -> list[Any]:
        if word:
            own = [torch.device(word) if isinstance(leaf, torch.device) else leaf for leaf in own]
        args, kwargs = pytree.tree_unflatten(own, spec)
        if word and "device" in kwargs:
            kwargs["device"] = word
        # Of what torch leaves open, such as the signs of eigenvectors, what is determined.
        return _tensors(sample.output_process_fn_grad(op.op(*args, **kwargs)))

    return Sample(compute, leaves)


def samples_of_operator(name: str, most: int) -> Iterator[Sample]:
    """At most ``most`` samples, evenly spread over those that CPU torch can compute."""
    import itertools

    import torch

    op = operators()[name]
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    samples = list(itertools.islice(made, most * 6))
    step = max(1, len(samples) // most)
    for sample in samples[::step][:most]:
        try:
            found = _sample_of_operator(op, sample)
        except Exception:
            continue
        if found.error is None:  # what CPU torch itself can not do is not compared
            yield found


def samples_of_form(text: str) -> Iterator[Sample]:
    for group in forms.FORMS[text]:
        for label, leaves in forms.inputs(group):
            sample = Sample(lambda own, word: forms.run(text, own), leaves, label)
            if not isinstance(sample.error, NotImplementedError):  # a dtype that only CPUs lack
                yield sample


def samples_of(name: str, most: int) -> Iterator[Sample]:
    return samples_of_form(name) if name in forms.FORMS else samples_of_operator(name, most)


def audit(name: str, device: Device, most: int) -> dict[str, Any]:
    """The worst verdict of an operator's or a form's samples, how many had which, and why."""
    found: Counter[str] = Counter()
    why: dict[str, str] = {}

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    for sample in samples_of(name, most):
        signal.alarm(SECONDS_PER_SAMPLE)
        try:
            with device.context:
                verdict, text = sample.judge(device)
        except TimeoutError:
            verdict, text = "timeout", f"more than {SECONDS_PER_SAMPLE} s"
        except Exception as error:  # whatever an operator raises is its verdict
            verdict, text = "raises", f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        found[verdict] += 1
        why.setdefault(verdict, " ".join(f"{sample.label} {text}".split())[:300])
    if not found:
        return {"verdict": "no sample", "counts": {}, "why": ""}
    worst = max(found, key=ORDER.index)
    return {"verdict": worst, "counts": dict(found), "why": why[worst]}


def work(target: str, kind: str, names: list[str], most: int) -> None:
    """In a process of its own: one JSON line before and after each case."""
    import logging

    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if kind == "ours":
        sys.path.insert(0, str(ROOT / "migrator" / "runtime" / target))
        import tpu_runtime

        tpu_runtime.setup()
    device = TARGETS[target].start()
    for name in names:
        print(json.dumps({"start": name}), flush=True)
        print(json.dumps({"name": name, **audit(name, device, most)}), flush=True)


def run_chunk(target: str, kind: str, results: dict[str, Any], most: int, names: list[str]) -> None:
    """Audit ``names`` in processes until all are done or noted as crashed."""
    left = list(names)
    while left:
        command = [sys.executable, __file__, "--target", target, "--worker", kind]
        done = subprocess.run(
            [*command, "--samples", str(most)],
            input=json.dumps(left),
            capture_output=True,
            text=True,
            env=os.environ | TARGETS[target].variables,
        )
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|") if name in forms.FORMS else name


def tables(names: list[str], what: str, results: dict[str, Any], stock: str) -> list[str]:
    """How many of ``names`` had which verdict, those that are not right, and all."""
    rows = [
        f"## {what.capitalize()}s\n",
        f"| verdict | {stock} | with tpu_runtime |",
        "|---|---|---|",
    ]
    for verdict in ORDER:
        counts = [
            sum(results[kind].get(name, {}).get("verdict") == verdict for name in names)
            for kind in KINDS
        ]
        rows.append(f"| {verdict} | {counts[0]} | {counts[1]} |")
    rows += ["\nNot right, with tpu_runtime:\n", f"| {what} | samples | what |", "|---|---|---|"]
    for name in names:
        ours = results["ours"].get(name)
        if ours and ours["verdict"] not in ("right", "no sample"):
            counts = ", ".join(f"{n} {v}" for v, n in ours["counts"].items())
            rows.append(f"| {_code(name)} | {counts or 'crash'} | {_cell(ours['why'][:160])} |")
    rows += ["\nAll:\n", f"| {what} | stock | with tpu_runtime |", "|---|---|---|"]
    for name in names:
        pair = [results[kind].get(name, {}).get("verdict", "") for kind in KINDS]
        rows.append(f"| {_code(name)} | {pair[0]} | {pair[1]} |")
    return [*rows, ""]


def page(library: str, results: dict[str, dict[str, Any]]) -> str:
    """The page for the docs."""
    stock = f"stock {library} {metadata.version(library)}"
    lines = [HEAD.format(library=library, back_end=TARGETS[library].back_end)]
    lines += tables(sorted(operators()), "operator", results, stock)
    lines += tables(list(forms.FORMS), "form", results, stock)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", nargs="*", help="names of operators, forms; 'forms' for all forms"
    )
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, help="operator_audit_TARGET.json")
    parser.add_argument("--out", type=Path, help="docs/operators-TARGET.md")
    options = parser.parse_args()
    target = options.target
    if options.worker:
        work(target, options.worker, json.load(sys.stdin), options.samples)
        return
    path = options.results or Path(f"operator_audit_{target}.json")
    known = json.loads(path.read_text()) if path.exists() else {}
    names = [*operators(), *forms.FORMS]
    if options.only:
        chosen = {*options.only, *(forms.FORMS if "forms" in options.only else ())}
        names = [name for name in names if name in chosen]
    chunks = [names[n : n + CHUNK] for n in range(0, len(names), CHUNK)]
    for kind in options.kind:
        results = known.setdefault(kind, {})
        with ThreadPoolExecutor(options.jobs) as pool:
            run = partial(run_chunk, target, kind, results, options.samples)
            for _ in pool.map(run, chunks):
                path.write_text(json.dumps(known, indent=1))
                print(kind, Counter(r["verdict"] for r in results.values()), flush=True)
    if all(kind in known for kind in KINDS):
        out = options.out or ROOT / "docs" / f"operators-{target}.md"
        out.write_text(page(target, known))


if __name__ == "__main__":
    main()
