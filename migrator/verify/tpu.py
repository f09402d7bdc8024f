"""Compiles a run's programs with the real TPU compiler, without a TPU.

On torchax the runtime writes steps and modules that it compiles as a whole in the form a TPU would
get. Other programs are those of the run, lowered for its own back end: operators, which the
compiler gets one by one, and steps of a program's own `jax.jit`, recognised by donated arguments.
On torch_xla each program is everything recorded up to a sync, as HLO.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .chips import chip_of
from .product_precision import CompiledProduct, PrecisionReport, dumped, products_of
from .verify_errors import VerifyError

DEFAULT = "v6e-8"

# Compiles programs inside the target's interpreter; returns what compile_for_tpu.py prints.
Compiler = Callable[[list[Path]], dict[str, Any]]

_DONATED = re.compile(r"tf\.aliasing_output|jax\.buffer_donor|\bbuffer_donor=")
_MODULE = re.compile(r"^(?:module @(?:jit_)?|HloModule )([^\s,]+)", re.MULTILINE)
_FILE = re.compile(r"jit_(.*)_compile\.mlir$")
_REFUSED = re.compile(r"// (cannot be lowered for a TPU: .*)")
_PLACES = re.compile(r"loc\(.*?\)|#loc.*")


@dataclass(frozen=True)
class DumpedProgram:
    """A dumped program: StableHLO, or HLO."""

    path: Path
    name: str
    is_step: bool
    products: list[CompiledProduct]
    error: str | None = None  # why there is none for a TPU

    @property
    def exact(self) -> list[CompiledProduct]:
        """Its float32 products."""
        return [product for product in self.products if product.is_float32]

    @property
    def is_float32(self) -> bool:
        """Whether all its products are float32: then the compiled ones can be judged by their
        text."""
        return 0 < len(self.exact) == len(self.products)


@dataclass(frozen=True)
class CompiledForTpu:
    """One program as compiled for a TPU; sizes are in bytes."""

    name: str
    file: str
    is_step: bool
    products: int
    below: list[str]  # products that request less than the highest precision
    lowered: list[str]  # products that the compiler lowered by itself
    seconds: float  # seconds of compiling
    error: str | None = None
    devices: int = 1  # the number of devices it is partitioned for; the rest is per device
    hbm: int = 0  # in all
    arguments: int = 0
    outputs: int = 0
    in_place: int = 0  # of outputs that reuse the memory of arguments
    temporaries: int = 0
    code: int = 0
    flops: float = 0.0
    accessed: float = 0.0
    collectives: dict[str, dict[str, int]] = field(default_factory=dict)  # by kind and module
    kernels: dict[str, int] = field(default_factory=dict)  # Pallas kernels by name

    @property
    def exchanges(self) -> int:
        """How many collectives it has."""
        return sum(sum(modules.values()) for modules in self.collectives.values())


@dataclass(frozen=True)
class TpuReport:
    """Programs that were compiled for, not run on, a TPU."""

    compile_for: str
    wanted: int  # programs
    exact: int  # programs with float32 products
    steps: int  # programs that are steps
    compiled: list[CompiledForTpu] = field(default_factory=list)  # with refused ones
    note: str | None = None  # why not all were tried

    @property
    def chip(self) -> str:
        return chip_of(self.compile_for).label

    @property
    def compiled_steps(self) -> list[CompiledForTpu]:
        """The largest first."""
        return sorted((c for c in self.compiled if c.is_step), key=lambda c: -c.hbm)

    def joined(self, other: TpuReport) -> TpuReport:
        """This report and ``other``, of more programs for the same TPU."""
        return TpuReport(
            self.compile_for,
            self.wanted + other.wanted,
            self.exact + other.exact,
            self.steps + other.steps,
            [*self.compiled, *other.compiled],
            self.note or other.note,
        )

    def problems(self) -> list[str]:
        """Problems to report if the user asked for compilation. Operators may differ on a TPU."""
        refused = [
            f"{c.name} does not compile for a {self.chip}: {c.error}"
            for c in self._refused
            if c.is_step
        ]
        left = self.steps - len(self.compiled_steps)
        if left or (self.wanted and not self.compiled):
            what = f"{left} of {self.steps} steps" if left else "the programs"
            return [*refused, f"{what} were not compiled for a {self.chip}: {self.note}"]
        return refused

    @property
    def _refused(self) -> list[CompiledForTpu]:
        return [c for c in self.compiled if c.error]

    @property
    def label(self) -> str:
        devices = self.compile_for.partition("-")[2]
        most = max((c.devices for c in self.compiled), default=1)
        which = "single-device programs, for one device" if most == 1 else f"programs for {most}"
        how = "" if devices == "1" else f": {which} of {devices}"
        return f"Compiled for, not run on, a {self.chip} ({self.compile_for}{how})"

    def lines(self) -> list[str]:
        """The lines to print next to the table of steps."""
        lines = []
        if not self.steps:
            lines.append("no compiled step or module among the programs of this run")
        if done := [c for c in self.compiled if not c.is_step and not c.error]:
            largest = max(done, key=lambda c: c.hbm)
            lines.append(
                f"{len(done)} other programs with dots or convolutions (single operators): "
                f"largest {largest.name}, {mib(largest.hbm)} MiB of HBM; "
                f"{sum(c.exchanges for c in done)} collectives; {precision_of(done)}"
            )
        lines += [line for step in self.compiled_steps for line in _exchanged(step)]
        for step in self.compiled_steps:
            if step.kernels:
                counts = ", ".join(f"{name} {n}" for name, n in sorted(step.kernels.items()))
                lines.append(f"kernels in {step.name}, not in its FLOPs: {counts}")
        lines += [f"not compiled: {c.name} ({c.file}): {c.error}" for c in self._refused]
        if self.note:
            left = self.wanted - len(self.compiled)
            steps = self.steps - len(self.compiled_steps)
            what = f"{left} of {self.wanted} programs not compiled ({steps} of them steps)"
            lines.append(f"{what}: {self.note}")
        return lines


def _exchanged(step: CompiledForTpu) -> Iterator[str]:
    """The modules of a program that make devices exchange data."""
    for kind, modules in sorted(step.collectives.items()):
        counts = ", ".join(f"{module or '(others)'} {n}" for module, n in sorted(modules.items()))
        yield f"{kind} in {step.name}: {counts}"


def mib(size: float) -> str:
    return f"{size / 2**20:,.1f}"


def precision_of(programs: Sequence[CompiledForTpu]) -> str:
    """The precision of the float32 products of ``programs``, in words."""
    products = sum(c.products for c in programs)
    below = sum(len(c.below) + len(c.lowered) for c in programs)
    if not products:
        return "no float32 product"
    return f"{below} of {products} below HIGHEST" if below else f"{products}, all HIGHEST"


def programs_of(dump_dir: Path, for_tpu: Path | None = None) -> list[DumpedProgram]:
    """Programs that are steps or have products, one of each text, the smallest first.

    ``for_tpu``: where the runtime has written steps and modules, in the place of their dumps.
    """
    whole = [_read(path, of_runtime=True) for path in dumped(for_tpu)] if for_tpu else []
    names = {program.name for program in whole}
    own = [_read(path) for path in dumped(dump_dir)]
    unique: dict[str, DumpedProgram] = {}
    for program in [*whole, *(p for p in own if p.name not in names)]:
        if program.is_step or program.products:
            text = program.path.read_text(encoding="utf-8", errors="replace")
            unique.setdefault(_PLACES.sub("", text), program)
    return sorted(_numbered(unique.values()), key=lambda p: p.path.stat().st_size)


def _read(path: Path, of_runtime: bool = False) -> DumpedProgram:
    text = path.read_text(encoding="utf-8", errors="replace")
    module = _MODULE.search(text) or _FILE.search(path.name)
    error = _REFUSED.match(text)
    products = products_of(path)
    whole = of_runtime or (path.suffix == ".txt" and bool(products))
    name = module[1] if module else path.name
    is_step = whole or _DONATED.search(text) is not None
    return DumpedProgram(path, name, is_step, products, error[1] if error else None)


def _numbered(programs: Iterable[DumpedProgram]) -> Iterator[DumpedProgram]:
    """More programs of one step (of other shapes, say) get a number: step, step (2)."""
    seen: Counter[str] = Counter()
    for program in programs:
        seen[program.name] += program.is_step
        number = f" ({seen[program.name]})" if seen[program.name] > 1 and program.is_step else ""
        yield replace(program, name=program.name + number)


def compile_programs(
    programs: list[DumpedProgram], compile_for: str, compiler: Compiler
) -> TpuReport:
    """Compile ``programs`` with the TPU compiler. If it is missing, that is a note."""
    exact, steps = sum(bool(p.exact) for p in programs), sum(p.is_step for p in programs)
    report = TpuReport(compile_for, len(programs), exact, steps)
    if not programs:
        return report
    refused = [_refused(program) for program in programs if program.error]
    lowered = [program for program in programs if not program.error]
    try:
        answer = compiler([program.path for program in lowered])
    except VerifyError as error:
        return replace(report, compiled=refused, note=str(error))
    # A compilation cut off by the time limit has no result for the rest.
    results = zip(lowered, answer["programs"], strict=False)
    compiled = [_compiled(p, facts, report.chip) for p, facts in results]
    return replace(report, compiled=[*refused, *compiled], note=answer["error"])


def _refused(program: DumpedProgram) -> CompiledForTpu:
    file = program.path.name
    return CompiledForTpu(program.name, file, program.is_step, 0, [], [], 0.0, program.error)


def _compiled(program: DumpedProgram, facts: dict[str, Any], chip: str) -> CompiledForTpu:
    below = [str(product) for product in program.exact if not product.is_highest]
    lowered = [
        f"{product} in {program.path.name} compiled for a {chip}"
        for product in facts.pop("below", [])
        if program.is_float32 and not below
    ]
    return CompiledForTpu(
        name=program.name,
        is_step=program.is_step,
        products=len(program.exact),
        below=below,
        lowered=lowered,
        **facts,
    )


def judge(report: PrecisionReport, found: TpuReport) -> PrecisionReport:
    """``report`` with the compiler's results for float32 products.

    A missing compiler is a note; a product whose precision the compiler lowered is an offender.
    """
    exact = [c for c in found.compiled if c.products and not c.error]
    errors = [c.error for c in found.compiled if c.error]
    why = found.note or next(iter(errors), None)
    return replace(
        report,
        offenders=[*report.offenders, *(product for c in exact for product in c.lowered)],
        compiled_for=f"a {found.chip}" if exact else None,
        compiled=len(exact),
        compilable=found.exact,
        note=f"TPU compiler: {why}" if why else None,
    )
