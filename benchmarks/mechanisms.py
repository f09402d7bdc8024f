"""What each mechanism of the runtime for torchax buys: with and without it.

    JAX_PLATFORMS=cpu python benchmarks/mechanisms.py [--only NAME …] [--programs NAME …] [--out F]

In the environment of torchax, with the group `trainers`. Each program runs in a process of its own,
once as it is and once for each mechanism that is switched off (by replacing a function, so that the
runtime needs no switches for it). For each: CPU seconds of the first two steps and the least of a
later one, as ratios without / with, programs compiled in all, and how far losses and parameters are
apart.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from compiled_programs import peak, recorded_programs
from mechanism_programs import PROGRAMS, ROOT, Ran

from migrator.targets.copies import folder_to_import

sys.path.insert(0, str(ROOT / "tests/repository"))

import structure

RUNTIME = ROOT / "migrator/runtime/torchax/tpu_runtime"


# ---- mechanisms ----------------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    return None


def unchanged(function: Any) -> Any:
    return function


@dataclass(frozen=True)
class Mechanism:
    """``code``: its modules, or `module:name name` for functions and classes of one. ``off``:
    switches it off, given a function that imports a module of the runtime."""

    code: tuple[str, ...]
    off: Callable[[Callable[[str], Any]], None]

    def lines(self) -> int:
        """Its lines of code, without docstrings, comments and blank lines."""
        return sum(map(_lines, self.code))


def _lines(code: str) -> int:
    module, _, names = code.partition(":")
    path, wanted = RUNTIME / f"{module}.py", names.split()
    if not wanted:
        return structure.lines_of_code(path)
    found = [n for n in ast.walk(structure.parsed(path)) if getattr(n, "name", "") in wanted]
    assert len(found) == len(wanted), f"{code}: not found"
    spans = {line for node in found for line in range(node.lineno, node.end_lineno + 1)}
    return len(spans & structure.code_lines(path))


def _no_first_calls(of: Any) -> None:
    of("compilation.purity").Inspection.is_possible = staticmethod(lambda: False)


def _no_models(of: Any) -> None:
    of("compilation.partial_compilation")._is_worth_it = lambda module: False


def _no_optimizers(of: Any) -> None:
    of("compilation.partial_compilation")._stepping = unchanged


def _no_clipping(of: Any) -> None:
    of("compilation.partial_compilation")._clipping = unchanged


def _stock_zero_grad(of: Any) -> None:
    of("compilation.partial_compilation")._dropping = unchanged


def _all_guards(of: Any) -> None:
    module = of("compilation.guard_skipping")
    stock = module.skipping_guards
    module.skipping_guards = lambda _=False: stock(False)


def _no_changing_numbers(of: Any) -> None:
    of("compilation.changing_numbers").ChangingArguments.note = nothing


def _no_varying_settings(of: Any) -> None:
    for name in ("learning_rates", "models_and_optimizers"):
        of(f"compilation.{name}").may_vary = lambda *_: False


def _no_donation(of: Any) -> None:
    class Sys:
        getrefcount = staticmethod(lambda _: 0)

    of("lazy.lazy_programs").sys = Sys


def _no_equal_results(of: Any) -> None:
    of("lazy.lazy_programs").LazyOperation.equal_results = lambda *_: {}


def _no_varying_numbers(of: Any) -> None:
    of("lazy.lazy_operators")._Form._has_changed = lambda *_: False
    of("lazy.lazy_graph").varies = lambda *_: False


def _no_lazy_operators(of: Any) -> None:
    package, taken = of(""), dict.fromkeys(("hold", "hold_function"), lambda *_: NotImplemented)
    package._HOOKS = replace(package._HOOKS, **taken)


def _not_installed(name: str) -> Callable[[Any], None]:
    def off(of: Any) -> None:
        of(name).install = nothing

    return off


MECHANISMS = {
    "models as programs": Mechanism(
        ("compilation/partial_compilation", "compilation/differentiation"), _no_models
    ),
    "optimizers' steps as programs": Mechanism(
        (
            "compilation/partial_compilation:_stepping _calls_it_first",
            "compilation/learning_rates", "compilation/initial_optimizer_state:is_known",
        ),
        _no_optimizers,
    ),
    "first calls as programs": Mechanism(
        (
            "compilation/purity", "compilation/first_call", "compilation/initial_optimizer_state",
        ),
        _no_first_calls,
    ),
    "clipping as a program": Mechanism(
        ("compilation/partial_compilation:_clip _clipping _is_plain_gradient",), _no_clipping
    ),
    "zero_grad without torchax": Mechanism(
        ("compilation/partial_compilation:_dropping _parameters",), _stock_zero_grad
    ),
    "guards skipped in `generate`": Mechanism(("compilation/guard_skipping",), _all_guards),
    "numbers of calls as inputs": Mechanism(
        ("compilation/changing_numbers",), _no_changing_numbers
    ),
    "scheduled settings as inputs": Mechanism(
        (
            "compilation/learning_rates:may_vary set_settings _parts _numbers _setting _is_setting"
            " _compare _power_of_setting",
            "compilation/models_and_optimizers:note_varying varying_now",
        ),
        _no_varying_settings,
    ),
    "operators recorded": Mechanism(
        ("lazy/lazy_operators", "lazy/operator_arguments", "lazy/lazy_numbers"), _no_lazy_operators
    ),
    "numbers of operators as inputs": Mechanism(
        ("lazy/lazy_numbers", "lazy/lazy_graph:varies number _number"), _no_varying_numbers
    ),
    "memory used again": Mechanism(("lazy/lazy_programs:_inputs",), _no_donation),
    "equal step counts share an array": Mechanism(
        ("lazy/lazy_programs:equal_results",), _no_equal_results
    ),
    "recurrent layers as loops": Mechanism(
        ("operators/recurrent_loops",), _not_installed("operators.recurrent_loops")
    ),
    "lines of the program in profiles": Mechanism(
        ("profiling/source_lines",), _not_installed("profiling.source_lines")
    ),
}  # fmt: skip


# ---- measuring -----------------------------------------------------------------------------------


def inside(mechanism: str, program: str) -> None:
    """Run one program in this process, and print what it took."""
    import importlib

    for folder in (ROOT / "benchmarks", Path(folder_to_import("torchax"))):
        sys.path.insert(0, str(folder))
    import tpu_runtime

    if mechanism:
        MECHANISMS[mechanism].off(
            lambda name: importlib.import_module(f"tpu_runtime.{name}".rstrip("."))
        )
    tpu_runtime.setup()
    ran = PROGRAMS[program]()
    ran.memory = peak(recorded_programs())
    print(json.dumps(asdict(ran)))


def measured(mechanism: str, program: str) -> Ran | str:
    """What the program took without the mechanism ("": with all), or its last line of an error."""
    command = [sys.executable, __file__, "--inside", mechanism, program]
    with tempfile.TemporaryDirectory() as cache:  # a first step finds nothing compiled
        environment = {
            **os.environ, "JAX_PLATFORMS": "cpu", "TPU_RUNTIME_REPORT": "0",
            "XDG_CACHE_HOME": cache,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][-200:]
    return Ran(**json.loads(done.stdout.splitlines()[-1]))


def apart(some: Ran, other: Ran) -> float:
    """The largest relative difference of their numbers."""
    if len(some.numbers) != len(other.numbers):
        return float("inf")
    pairs = zip(some.numbers, other.numbers, strict=True)
    return max((abs(a - b) / max(abs(a), abs(b), 1e-6) for a, b in pairs), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MECHANISMS, default=[*MECHANISMS])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--out", type=Path, help="write all figures here, as JSON")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(*args.inside)
        return 0
    found: dict[str, dict[str, Any]] = {}
    for program in args.programs:
        known = measured("", program)
        print(f"{program}: {known}"[:160], flush=True)
        if isinstance(known, str):
            return 1
        for mechanism in args.only:
            ran = measured(mechanism, program)
            cell: dict[str, Any] = {"error": ran}
            if isinstance(ran, Ran):
                cell = {
                    "first": ran.first / known.first, "step": ran.step / known.step,
                    "programs": [known.programs, ran.programs], "apart": apart(ran, known),
                    "memory": ran.memory / max(known.memory, 1),
                }  # fmt: skip
            found.setdefault(mechanism, {})[program] = cell
            print(f"  without {mechanism}: {cell}", flush=True)
            if args.out:
                args.out.write_text(json.dumps(found, indent=1))
    print(table(found))
    return 0


def table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each mechanism: of each figure the largest ratio, and the program that has it."""
    lines = ["| without | lines | a step | first two steps | memory | programs | apart |"]
    lines.append("|---" * 7 + "|")
    for name, cells in found.items():
        known = {program: cell for program, cell in cells.items() if "error" not in cell}

        def worst(figure: str, known: dict[str, Any] = known) -> str:
            program = max(known, key=lambda each: known[each][figure])
            return f"{known[program][figure]:.2f} ({program})"

        before, after = (sum(cell["programs"][k] for cell in known.values()) for k in (0, 1))
        far = max(cell["apart"] for cell in known.values())
        errors = [program for program, cell in cells.items() if "error" in cell]
        failed = f"; fails: {', '.join(errors)}" if errors else ""
        figures = " | ".join(map(worst, ("step", "first", "memory")))
        row = f"{name} | {MECHANISMS[name].lines()} | {figures} | {before} → {after} | {far:.0e}"
        lines.append(f"| {row}{failed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
