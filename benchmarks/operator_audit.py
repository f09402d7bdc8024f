"""Operators and forms of code on a target against CPU torch: values and gradients.

Operators are those of torch's OpInfo database, forms those of forms.py. Run in the environment of
the target (some ten minutes of one core, stock and ours together):

    PYTHON benchmarks/operator_audit.py --target torchax

It writes docs/operators-TARGET.md, and the raw results to --results, which a later call reuses for
what it is not told to run again (``--only NAME ...``, ``--kind ours``). Cases run in processes of
some hundred, forked from one that has imported the target, and one that crashes its process is
noted and left out of the next.

`--target cuda --kind stock`, on a machine with an NVIDIA GPU, says how far a GPU itself is from the
CPU that stands in for it.
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import re
import signal
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import forms
from audit_samples import operators, samples_of
from audit_variants import AS_GIVEN, VARIANTS

from migrator.targets.copies import folder_to_import

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("stock", "ours")
Results = dict[str, dict[str, Any]]  # of each kind by name
NOTHING = {"verdict": "no sample"}
CHUNK = 100
SECONDS_PER_SAMPLE = 60
ORDER = (
    "right", "raises", "timeout", "crash", "does not raise", "no gradient", "wrong gradient",
    "wrong values",
)  # fmt: skip
# Machine code that runs once need not be polished: that took most of the time.
QUICKLY = "--xla_backend_optimization_level=0"

HEAD = """# Operators on {title}

Made by `benchmarks/operator_audit.py`: each operator of torch's OpInfo database that has float32
and is not random, and each form of `benchmarks/forms.py`: values and gradients against CPU torch,
on {back_end}. Operators are also called in other ways (`benchmarks/audit_variants.py`): with
dimensions counted from the end, with keywords, of tensors without dimensions, without elements,
and not contiguous in memory. What counts is the worst sample. `wrong` and `no gradient` are silent,
and so is `does not raise`, where torch does: a program that runs on a GPU does not meet it.
{note}"""


@dataclass(frozen=True)
class Device:
    """The device of a target, in a process that has started it."""

    word: str
    move: Callable[[Any], Any]
    context: contextlib.AbstractContextManager[Any]
    compute: Callable[[], object]  # what is recorded
    narrowed: dict[Any, Any] = field(default_factory=dict)  # dtypes that it has not, and the others
    works: Callable[[], bool] = lambda: True  # a GPU does nothing more after an index out of range


def torchax() -> Device:
    import torch
    import torchax

    environment = torchax.default_env()
    narrowed = {
        torch.int64: torch.int32,
        torch.float64: torch.float32,
        torch.complex128: torch.complex64,
        torch.complex32: torch.complex64,
    }
    return Device("jax", lambda tensor: tensor.to("jax"), environment, lambda: None, narrowed)


def torch_xla() -> Device:
    import torch
    import torch_xla

    torch.zeros(1, device=torch_xla.device())  # before a backward on the CPU, else later ones raise
    return Device("xla", lambda tensor: tensor.to("xla"), contextlib.nullcontext(), torch_xla.sync)


def torch_tpu() -> Device:
    import torch

    wait = torch.accelerator.synchronize
    return Device("tpu", lambda t: t.to("tpu"), contextlib.nullcontext(), wait)


def cuda() -> Device:
    import torch

    def works() -> bool:
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    context = contextlib.nullcontext()
    return Device("cuda", lambda t: t.to("cuda"), context, torch.cuda.synchronize, works=works)


@dataclass(frozen=True)
class Target:
    start: Callable[[], Device]
    back_end: str
    dtypes: tuple[str, ...]  # of operators
    variables: dict[str, str]
    note: str = ""  # on what is wrong
    package: str = ""  # to import, if it is not named as the target
    forks: bool = True  # what has imported torch's database may fork
    title: str = ""
    modules: Path | None = None  # a folder by which torch finds the device


TARGETS = {
    "torchax": Target(
        torchax,
        "JAX's CPU back end",
        ("float32",),
        {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{QUICKLY} --xla_cpu_parallel_codegen_split_count=1",
        },
        "What is `wrong` asks for the bytes of 64-bit numbers, which have 32 bits on the device\n"
        "unless JAX_ENABLE_X64 is set ([limits](limits.md)).\n",
    ),
    "torch_xla": Target(
        torch_xla,
        "XLA's CPU back end",
        ("float32", "float64"),
        {"PJRT_DEVICE": "CPU", "XLA_FLAGS": QUICKLY},
    ),
    "torch_tpu": Target(
        torch_tpu,
        "XLA's CPU client",
        ("float32",),
        {"TPU_SKIP_MDS_QUERY": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": QUICKLY},
        "`LuDecomposition` is missing in XLA's CPU client, not in torch_tpu. What CPUs compute\n"
        "instead counts as right. A `crash` ends a process. See [limits](limits.md) on `wrong`.\n",
        modules=ROOT / "migrator/targets/torch_tpu/on_cpu",
    ),
    "cuda": Target(
        cuda,
        "an NVIDIA GPU, without TF32",
        ("float32",),
        {"NVIDIA_TF32_OVERRIDE": "0"},
        "It says how near the CPU comes to a GPU, for which it stands in where there is none\n"
        "(`verify`, goldens).\n",
        "torch",
        forks=False,
        title="a GPU",
    ),
}


def audit(name: str, target: str, device: Device, most: int) -> dict[str, Any]:
    """The worst verdict of an operator's or a form's samples, how many had which, and why.

    Also the worst of each way to call it.
    """
    found: Counter[str] = Counter()
    ways: dict[str, str] = {}
    why: dict[str, str] = {}

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    for sample in samples_of(name, most, TARGETS[target].dtypes):
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
        way = sample.variant
        ways[way] = max(ways.get(way, verdict), verdict, key=ORDER.index)
        why.setdefault(verdict, " ".join(f"{sample.label} {text}".split())[:300])
        if not device.works():
            break
    if not found:
        return {"verdict": "no sample", "counts": {}, "why": ""}
    worst = max(found, key=ORDER.index)
    return {"verdict": worst, "counts": dict(found), "why": why[worst], "ways": ways}


def work(target: str, kind: str, names: Sequence[str], most: int, out: Any) -> None:
    """In a process of its own: one JSON line before and after each case."""
    if kind == "ours":
        sys.path.insert(0, str(folder_to_import(target)))
        importlib.import_module("tpu_runtime").setup()
    device = TARGETS[target].start()
    for name in names:
        print(json.dumps({"start": name}), file=out, flush=True)
        found = audit(name, target, device, most)
        print(json.dumps({"name": name, **found}), file=out, flush=True)
        if not device.works():
            sys.exit("the device is lost: another process goes on")


@dataclass
class Worker:
    """A process that audits ``names``, what it has written, and what it has complained of."""

    names: Sequence[str]
    lines: IO[str] = field(default_factory=partial(tempfile.TemporaryFile, "w+"))
    errors: IO[str] = field(default_factory=partial(tempfile.TemporaryFile, "w+"))

    def start(self, target: str, kind: str, most: int) -> int:
        """The number of the process, forked from this one."""
        if number := os.fork():
            return number
        status = 1
        try:
            os.dup2(self.errors.fileno(), 2)
            if not TARGETS[target].forks:
                os.dup2(self.lines.fileno(), 1)
                told = ("--target", target, "--kind", kind, "--samples", str(most))
                names = json.dumps(self.names)
                os.execv(sys.executable, (sys.executable, __file__, *told, "--work", names))
            work(target, kind, self.names, most, self.lines)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def found(self, status: int) -> tuple[dict[str, Any], Sequence[str]]:
        """The results, and the names that are left of a process that has crashed."""
        self.lines.seek(0)
        self.errors.seek(0)
        lines = [json.loads(line) for line in self.lines]
        errors = self.errors.read()
        results = {line.pop("name"): line for line in lines if "name" in line}
        if not status:
            return results, ()
        if not lines:
            sys.exit(f"the worker cannot start: {errors[-2000:]}")
        last = [line["start"] for line in lines if "start" in line][-1]
        if last not in results:
            reasons = [line for line in errors.splitlines() if "Check failed" in line]
            why = f"exit status {os.waitstatus_to_exitcode(status)} {' '.join(reasons[-1:])}"
            results[last] = {"verdict": "crash", "counts": {}, "why": why}
        return results, self.names[self.names.index(last) + 1 :]


def run(
    target: str, kind: str, names: Sequence[str], most: int, jobs: int
) -> Iterator[dict[str, Any]]:
    """Audit ``names`` in processes until all are done or noted as crashed."""
    waiting = [names[n : n + CHUNK] for n in range(0, len(names), CHUNK)]
    running: dict[int, Worker] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            worker = Worker(waiting.pop(0))
            running[worker.start(target, kind, most)] = worker
        number, status = os.wait()
        results, left = running.pop(number).found(status)
        if left:
            waiting.insert(0, left)
        yield results


def _code(name: str) -> str:
    return f"`{name}`" if name in forms.FORMS else name


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def tables(what: str, names: Sequence[str], results: Results, library: str) -> Iterator[str]:
    """How many of ``names`` had which verdict, those that are not right, and the others."""
    kinds = {kind: found for kind, found in results.items() if any(n in found for n in names)}
    package = TARGETS[library].package or library
    judged = "ours" if "ours" in results else "stock"
    alone = "stock" if "ours" in results else "with"
    heads = {"stock": f"{alone} {package} {metadata.version(package)}", "ours": "with tpu_runtime"}
    ways = [results[judged].get(name, NOTHING).get("ways", {}) for name in names]
    columns = [way for way in (AS_GIVEN, *VARIANTS) if what == "operator" and any(map(len, ways))]
    yield f"## {what.capitalize()}s\n"
    yield _row("verdict", *map(heads.get, kinds), *columns)
    yield "|---" * (1 + len(kinds) + len(columns)) + "|"
    for verdict in ORDER:
        counts = [
            sum(found.get(name, {}).get("verdict") == verdict for name in names)
            for found in kinds.values()
        ]
        counts += [sum(found.get(way) == verdict for found in ways) for way in columns]
        yield _row(verdict, *counts)
    yield f"\nNot right {heads[judged]}:\n\n{_row(what, 'verdict', 'samples', 'the first')}"
    yield "|---|---|---|---|"
    right: dict[str, list[str]] = {verdict: [] for verdict in ORDER}
    for name in names:
        ours = results[judged].get(name, NOTHING)
        if ours["verdict"] == "right":
            stock = results.get("stock", {}).get(name, ours)["verdict"]
            right.setdefault(stock, []).append(_code(name))
        elif ours["verdict"] in ORDER:
            counts = ", ".join(f"{n} {v}" for v, n in ours["counts"].items())
            why = ours["why"][:160].replace("<", "&lt;").replace("`", "'")
            yield _row(_code(name), ours["verdict"], counts, why)
    for verdict, which in right.items():
        if which:
            of_stock = "" if verdict == "right" else f"; stock: {verdict}"
            text = f"Right {heads[judged]}{of_stock}: {', '.join(which)}."
            # A line that begins with "+ 0" would be a list.
            whole = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\0"), text)
            filled = textwrap.fill(whole, 100, break_long_words=False, break_on_hyphens=False)
            yield "\n" + filled.replace("\0", " ")


def page(library: str, results: Results) -> str:
    """The page for the docs."""
    target = TARGETS[library]
    title = target.title or library
    lines = [HEAD.format(title=title, back_end=target.back_end, note=target.note)]
    lines += tables("operator", sorted(operators()), results, library)
    lines += ["", *tables("form", list(forms.FORMS), results, library)]
    return "\n".join(lines) + "\n"


def not_right(text: str) -> dict[str, str]:
    """The verdicts in a page of the operators and forms that are not right."""
    cells = (re.split(r"(?<!\\)\|", line) for line in text.splitlines())
    rows = [[cell.strip().replace("\\|", "|") for cell in row] for row in cells if len(row) == 6]
    return {row[1].strip("`"): row[2] for row in rows if row[2] in ORDER}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument(
        "--only", nargs="*", help="names of operators, forms; 'forms' for all forms"
    )
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, help="operator_audit_TARGET.json")
    parser.add_argument("--out", type=Path, help="docs/operators-TARGET.md")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)  # a process of ours
    options = parser.parse_args()
    target = options.target
    os.environ.update(TARGETS[target].variables)
    if TARGETS[target].modules is not None:
        sys.path.insert(0, str(TARGETS[target].modules))
    importlib.import_module("torch")
    with contextlib.suppress(ImportError):
        importlib.import_module("torchvision")  # some targets have to come after it
    importlib.import_module(TARGETS[target].package or target)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if options.work:
        work(target, options.kind[0], options.work, options.samples, sys.stdout)
        return
    path = options.results or Path(f"operator_audit_{target}.json")
    known = json.loads(path.read_text()) if path.exists() else {}
    names = [*operators(), *forms.FORMS]
    if options.only:
        chosen = {*options.only, *(forms.FORMS if "forms" in options.only else ())}
        names = [name for name in names if name in chosen]
    for kind in options.kind:
        results = known.setdefault(kind, {})
        for found in run(target, kind, names, options.samples, options.jobs):
            results.update(found)
            path.write_text(json.dumps(known, indent=1))
            print(kind, Counter(r["verdict"] for r in results.values()), flush=True)
    if "ours" in known or target == "cuda":
        (options.out or ROOT / "docs" / f"operators-{target}.md").write_text(page(target, known))


if __name__ == "__main__":
    main()
