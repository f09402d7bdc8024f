"""Forecasts beside published times: of programs that others ran on TPUs.

    python benchmarks/forecasts.py [NAME ...]; python docs/generate.py

Compiles the programs (all, or those named) for the TPU that they ran on, without one, and writes
their figures to forecasts.json, of which docs/forecast.md has a table. Runs in the target's Python,
which has JAX and libtpu. Nothing runs on a TPU: the published times are those of their authors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "forecasts.json"

Figures = dict[str, float]

RECIPES = "https://github.com/AI-Hypercomputer/tpu-recipes/blob/main/"
SOURCES = {
    "chip": RECIPES + "microbenchmarks/README.md",
    "ironwood": RECIPES + "microbenchmarks/ironwood/README.md",
    "collectives": RECIPES + "microbenchmarks/trillium/collectives/README.md",
    "llama": RECIPES + "training/trillium/Llama3.1-8B-MaxText/v6e-8/README.md",
    "video": "https://github.com/yangwhale/gpu-tpu-pedia/blob/main/tpu/HunyuanVideo-1.5/"
    "generate_hunyuan_torchax_staged/README.md",
}


@dataclass(frozen=True)
class Program:
    """``published``: seconds; ``source``: one of SOURCES; ``figures``: compiles it."""

    name: str
    chips: str
    published: float
    source: str
    figures: Callable[[], Figures]


def _on(slice_name: str, make: str, *how: Any) -> Callable[[], Figures]:
    """A function of forecast_programs, compiled for a slice."""

    def figures() -> Figures:
        import forecast_figures
        import forecast_programs

        from migrator.verify.chips import topology
        from migrator.verify.compile_for_tpu import text_of

        compiled = getattr(forecast_programs, make)(topology(slice_name), *how)
        return forecast_figures.figures(text_of(compiled.runtime_executable()), slice_name)

    return figures


def _whole_pod() -> Figures:
    """The all-reduce on 256 chips: a torus, where a chip has all of its links."""
    import forecast_figures
    import forecast_programs

    from migrator.verify.chips import chips

    pod = "v6e:16x16"
    chip = dataclasses.replace(chips()["v6e"], count=256, links=2, topologies={256: pod})
    compiled = forecast_programs.all_reduce(pod, 17408)
    return forecast_figures.figures(compiled.as_text(), chip)


def _llama() -> Figures:
    """A step of 32 layers: one without any, and 32 times what the first layer adds."""
    import forecast_programs

    model = forecast_programs.Llama(batch=3)
    ends, one = (_on("v6e-8", "train_step", model, depth)() for depth in (0, 1))
    return {name: ends[name] + model.depth * (one[name] - ends[name]) for name in one}


def _video(shard: str, which: str = "full") -> Callable[[], Figures]:
    """The video transformer in its real shape, divided by XLA alone, as it was for the figures."""

    def figures() -> Figures:
        import forecast_figures
        import video_transformer_v6e

        args = argparse.Namespace(frames=121, size="720p", ungathered=True, python=sys.executable)
        found = video_transformer_v6e.in_real_shape(args, shard)[which]
        return {name: found[name] for name in (*forecast_figures.SUMS, "hbm")}

    return figures


PRODUCTS = {256: 18.28645367, 1024: 349.7270639, 2048: 679.284728, 4096: 892.9445127,
            16384: 950.1286983}  # fmt: skip
SUM_BYTES, SUM_RATE = 2 * 255 / 256 * 2 * 17408**2, 235.7595345e9

REPLICATED = "video transformer, a step, fc2 and proj replicated"
ROWS = "video transformer, a step, fc2 and proj by rows"
CACHED = "video transformer, a step of DeepCache"

PROGRAMS = [
    Program("product of 8,192³ in bfloat16", "v6e-1", 1.328756094e-3, "chip",
            _on("v6e-1", "product", 8192)),
    *(Program(f"product of {n:,}³ in bfloat16", "half of a v7x", 2 * n**3 / rate / 1e12, "ironwood",
              _on("v7x-1", "product", n)) for n, rate in PRODUCTS.items()),
    Program("copy of 33.6 MB", "v6e-1", 49.359414e-6, "chip", _on("v6e-1", "copy", 16777216)),
    Program("all-reduce of 606 MB", "v6e-256", SUM_BYTES / SUM_RATE, "collectives", _whole_pod),
    Program("Llama 3.1 8B, a step of MaxText", "v6e-8", 3.443, "llama", _llama),
    Program(REPLICATED, "v6e-8", 7.29, "video", _video("tp")),
    Program(ROWS, "v6e-8", 8.12, "video", _video("tp-row")),
    Program(CACHED, "v6e-8", 0.5, "video", _video("tp", "cached")),
]  # fmt: skip

# Times as fast: name, published, and its inverse by the seconds of a way to forecast.
STEPS, CACHED_STEPS = 50, 25
Seconds = Callable[[str], float]
RATIOS: list[tuple[str, str, float, str, Callable[[Seconds], float]]] = [
    ("fc2 and proj replicated, not by rows", "v6e-8", 8.12 / 7.29, "video",
     lambda of: of(ROWS) / of(REPLICATED)),
    ("DeepCache, 25 of 50 steps cached", "v6e-8", 1.8, "video",
     lambda of: STEPS * of(REPLICATED)
     / ((STEPS - CACHED_STEPS) * of(REPLICATED) + CACHED_STEPS * of(CACHED))),
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of programs' names")
    args = parser.parse_args()
    os.environ.update(TPU_SKIP_MDS_QUERY="1", JAX_PLATFORMS="cpu", TPU_LOG_DIR="disabled",
                      ALLOW_MULTIPLE_LIBTPU_LOAD="1")  # fmt: skip
    found: dict[str, Figures] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for program in PROGRAMS:
        if not args.names or any(name in program.name for name in args.names):
            print(f"compiling: {program.name}", file=sys.stderr, flush=True)
            found[key(program)] = program.figures()
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(published())
    return 0


def published() -> str:
    """The table of docs/forecast.md."""
    return "\n".join([*table(json.loads(RESULTS.read_text())), "", *links()])


def key(program: Program) -> str:
    return f"{program.name}, {program.chips}"


def table(found: dict[str, Figures]) -> Iterator[str]:
    """Markdown: the bound and the estimate beside what was published."""
    yield "| | on | published | bound | | estimate | |"
    yield "|---|---|---|---|---|---|---|"
    known = {program.name: found[key(program)] for program in PROGRAMS if key(program) in found}
    for program in PROGRAMS:
        if key(program) not in found:
            continue
        least, whole = bound(found[key(program)]), found[key(program)]["estimate"]
        yield _row(
            f"[{program.name}][{program.source}]", program.chips, program.published, least, whole,
            shown,
        )  # fmt: skip
    for name, chips, published, source, ratio in RATIOS:
        if {REPLICATED, ROWS, CACHED} <= set(known):
            by = [ratio(lambda n: bound(known[n])), ratio(lambda n: known[n]["estimate"])]
            yield _row(f"[{name}][{source}]", chips, published, *by, "{:.2f} times".format)


def links() -> Iterator[str]:
    return (f"[{name}]: {url}" for name, url in SOURCES.items())


def bound(figures: Figures) -> float:
    return max(figures["matrix"], figures["hbm_seconds"], figures["interconnect"])


def _row(
    name: str, chips: str, published: float, least: float, whole: float,
    say: Callable[[float], str],
) -> str:  # fmt: skip
    cells = [name, chips, say(published)]
    for value in (least, whole):
        cells += [say(value), f"{value / published - 1:+.0%}"]
    return f"| {' | '.join(cells)} |"


def shown(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


if __name__ == "__main__":
    sys.exit(main())
