"""Whether every float32 product of the compiled programs has the highest precision.

A TPU multiplies float32 in one bfloat16 pass unless a program requests more. Numbers from a CPU
back end can't show that, but the programs handed to the compiler do. So a run dumps them: as
StableHLO for each jitted program, or as HLO before XLA's optimisations, depending on the target
(Host.dump). "Product" means dot or convolution here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from migrator.report.statistics import count_noun
from migrator.targets import Target

_STABLEHLO = re.compile(r'"?stablehlo\.(dot_general|dot|convolution)\b"?')
_STABLEHLO_TYPES = re.compile(r":\s*\(tensor<(.+?)>, tensor<(.+?)>\) -> tensor<(.+?)>")
_STABLEHLO_FLOAT32 = re.compile(r"(^|x)(complex<)?f32>?$")
_HLO = re.compile(r"%?([\w.-]+) = (\S+) (dot|convolution)\(([^)]*)\)(.*)")
_HLO_TYPE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = ([a-z]+\d*)\[", re.MULTILINE)
_HLO_FLOAT32 = {"f32", "c64"}  # a complex product consists of float32 ones


@dataclass(frozen=True)
class CompiledProduct:
    """One dot or convolution of a compiled program."""

    program: str
    kind: str
    result: str
    is_float32: bool
    is_highest: bool

    def __str__(self) -> str:
        return f"{self.kind} to {self.result} in {self.program}"


@dataclass(frozen=True)
class PrecisionReport:
    """Counts of float32 products; offenders are those below the highest precision."""

    programs: int
    count_dots: int = 0
    count_convs: int = 0
    offenders: list[str] = field(default_factory=list)
    compiled_for: str | None = None  # a TPU the programs were compiled for, not run on
    compiled: int = 0  # the number of programs with a float32 product
    compilable: int = 0
    note: str | None = None  # why nothing, or not everything, was compiled for a TPU

    @property
    def passed(self) -> bool:
        """Nothing below the highest precision, in at least one program."""
        return self.programs > 0 and not self.offenders

    def lines(self) -> list[str]:
        """The lines to print."""
        if not self.programs:
            return ["precision: not checked, no program was compiled for the target"]
        dots = count_noun(self.count_dots, "product") + " of float32 matrices"
        said = f"{dots} and {count_noun(self.count_convs, 'convolution')}"
        said += f" in {count_noun(self.programs, 'program')}"
        if self.count_dots + self.count_convs:
            below = len(self.offenders)
            said += f": {below} below HIGHEST" if below else ": all at HIGHEST"
        lines = [f"precision: {said}"]
        lines += [f"  below HIGHEST: {offender}" for offender in self.offenders[:5]]
        if len(self.offenders) > 5:
            lines.append(f"  and {len(self.offenders) - 5} more")
        if self.compiled_for:
            lines.append(
                f"  {self.compiled} of {self.compilable} programs with such products compiled "
                f"for, not run on, {self.compiled_for}"
            )
        if self.note:
            lines.append(f"  {self.note}")
        return lines


def collect(env: Mapping[str, str], dump_dir: Path, target: Target) -> dict[str, str]:
    """``env`` with the settings that make a run of ``target`` dump its programs to ``dump_dir``."""
    dump_dir.mkdir(parents=True, exist_ok=True)
    return target.host.dumping(env, str(dump_dir))


def dumped(folder: Path) -> list[Path]:
    """The programs of a run, in either form."""
    forms = ("**/*_compile.mlir", "**/*before_optimizations.txt")
    return [path for form in forms for path in sorted(folder.glob(form))]


def check(dump_dir: Path) -> PrecisionReport:
    """Read every dumped program of a run; both forms are understood."""
    programs = dumped(dump_dir)
    products = [product for program in programs for product in products_of(program)]
    exact = [product for product in products if product.is_float32]
    return PrecisionReport(
        programs=len(programs),
        count_dots=sum(product.kind != "convolution" for product in exact),
        count_convs=sum(product.kind == "convolution" for product in exact),
        offenders=[str(product) for product in exact if not product.is_highest],
    )


def products_of(program: Path) -> list[CompiledProduct]:
    """The dots and convolutions of one dumped program."""
    text = program.read_text(encoding="utf-8", errors="replace")
    found = _in_stablehlo if program.suffix == ".mlir" else _in_hlo
    return list(found(text, program.name))


def _in_stablehlo(text: str, name: str) -> Iterator[CompiledProduct]:
    for line in text.splitlines():
        match = _STABLEHLO.search(line)
        types = _STABLEHLO_TYPES.search(line)
        if match is None:
            continue
        highest = len(re.findall(r"\bHIGHEST\b", line[match.end() :])) == 2
        *operands, result = types.groups() if types else ("f32", "types that cannot be read")
        float32 = any(map(_STABLEHLO_FLOAT32.search, operands))
        yield CompiledProduct(name, match[1].removesuffix("_general"), result, float32, highest)


def _in_hlo(text: str, name: str) -> Iterator[CompiledProduct]:
    kinds = {found[1]: found[2] for found in _HLO_TYPE.finditer(text)}
    for match in _HLO.finditer(text):
        result, operation, operands, rest = match.groups()[1:]
        dtypes = [
            kinds.get(operand.split()[-1].lstrip("%"), result.partition("[")[0])
            for operand in operands.split(",")
            if operand.strip()
        ]
        float32 = any(dtype in _HLO_FLOAT32 for dtype in dtypes)
        highest = "operand_precision={highest,highest}" in rest
        yield CompiledProduct(name, operation, result.partition("{")[0], float32, highest)
