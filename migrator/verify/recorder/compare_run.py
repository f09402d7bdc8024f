"""Compares tensors of two recordings, pair by pair, with what rounding does to the first.

    python compare_run.py SPEC.json

SPEC.json: `golden` and `run`, safetensors files, and `roundings`, a list of them; `pairs`, each
with `golden`, `run` and `roundings` (a list, with null for none), names of tensors in them,
`rounded` (see `allowed`), `factor` of the tolerance and `growth` of its unit (1 if missing), `few`
(the share of elements that may be off by more, 0 if missing), `infinite` (or null), the tensor of
the golden whose Inf may be there, maybe `among` (a name that tensors share of which one may be
nothing but rounding: the magnitude of all counts); `units` of dtypes.
Prints one line of JSON: a row for each pair.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "<i1", "U8": "<u1", "BOOL": "<u1",
}  # fmt: skip
_TINY = 2.0**-126  # what is smaller may be flushed to 0
_ULP = {"F64": 2.0**-52, "F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}
# Other types that a back end may have in the place of the golden's: none of 64 bits, no float16.
_INSTEAD = {("F64", "F32"), ("F16", "BF16")}
_INTEGERS = {"I64", "I32", "I16", "I8"}


class Tensors:
    """A safetensors file; tensors are read one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self.header: dict[str, Any] = json.loads(file.read(length))
        self.start = 8 + length

    def read(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Values as float64, or integers; and what the header says of them."""
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + begin)
            raw = np.frombuffer(file.read(end - begin), _TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        kind = np.float64 if entry["dtype"] in _ULP else np.int64
        return raw.astype(kind).reshape(entry["shape"]), entry


def allowed(
    want: Any, roundings: list[Any], unit: float, rounded: float, among: float = 0.0
) -> tuple[float, float]:
    """How far any element of a tensor may be off; and the root mean square of all.

    `unit` of the largest magnitude, or of the root mean square: what one operation's other order of
    sums does. And `rounded` times what other roundings did to the original, at most: which element
    they move far is chance, how many and how far is not.
    """
    farthest = mean = 0.0
    for again in roundings:
        with np.errstate(invalid="ignore"):
            moved = again - want
        moved = np.where(np.isfinite(moved), moved, 0.0)
        farthest, mean = max(farthest, magnitude(moved)), max(mean, root_mean_square(moved))
    return (
        _TINY + unit * max(magnitude(want), among) + rounded * farthest,
        _TINY + unit * max(root_mean_square(want), among) + rounded * mean,
    )


def _same_kind(want: str, got: str) -> bool:
    return want == got or {want, got} <= _INTEGERS or (want, got) in _INSTEAD


def magnitude(values: Any) -> float:
    """The largest that is finite."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def root_mean_square(values: Any) -> float:
    """Of those that are finite."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def compare(pair: dict[str, Any], golden: Tensors, roundings: list[Tensors], run: Tensors,
            units: dict[str, float], among: dict[str, float]
            ) -> dict[str, Any]:  # fmt: skip
    """One row."""
    want, entry = golden.read(pair["golden"])
    got, ours = run.read(pair["run"])
    row: dict[str, Any] = {"shape": entry["shape"], "dtype": entry["dtype"], "elements": want.size}
    if entry["shape"] != ours["shape"]:
        return {**row, "reason": f"shape {ours['shape']}, golden {entry['shape']}"}
    floats = entry["dtype"] in _ULP
    if not _same_kind(entry["dtype"], ours["dtype"]):
        return {**row, "reason": f"dtype {ours['dtype']}, golden {entry['dtype']}"}
    if not floats:
        wrong = int(np.sum(want != got))
        largest = int(np.max(np.abs(want - got), initial=0))
        row |= {"max_abs": float(largest), "ratio": float(wrong > 0) * 2}
        return {**row, "reason": f"{wrong} of {want.size} values differ" if wrong else None}
    odd = ~(np.isfinite(want) & np.isfinite(got))
    if pair.get("infinite") is not None and odd.any():  # the program's own, as in a mask
        own = golden.read(pair.get("infinite"))[0]
        own = np.isinf(own) & (own == want) & (want == got) if own.shape == want.shape else False
        odd, want, got = (
            odd & np.logical_not(own),
            np.where(own, 0.0, want),
            np.where(own, 0.0, got),
        )
    if odd.any():
        same = np.array_equal(want[odd], got[odd], equal_nan=True)
        text = "both have" if same else "here or in the golden"
        return {**row, "reason": f"{int(odd.sum())} NaN or Inf, {text}"}
    again = [
        file.read(name)[0]
        for file, name in zip(roundings, pair["roundings"], strict=True)
        if name in file.header and file.header[name]["shape"] == entry["shape"]
    ]
    unit = max(units[entry["dtype"]], units[ours["dtype"]])
    largest = among.get(pair.get("among", ""), 0.0)
    factor = pair.get("factor", 1.0)
    unit *= pair.get("growth", 1.0)
    limit, mean_limit = (factor * a for a in allowed(want, again, unit, pair["rounded"], largest))
    off = np.abs(got - want)
    judged = _without_few(off, int(pair.get("few", 0.0) * off.size), magnitude(want))
    farthest, mean = magnitude(judged), root_mean_square(judged)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(want != 0, off / np.abs(want), 0.0)
    norms = float(np.linalg.norm(want) * np.linalg.norm(got))
    step = max(_ULP[entry["dtype"]], _ULP[ours["dtype"]])
    with np.errstate(divide="ignore"):
        ulps = off / (step * 2.0 ** np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126))))
    at = int(np.argmax(off)) if off.size else 0
    reason = None
    if farthest > limit:
        beyond = int(np.sum(off > limit))
        reason = f"{beyond} of {want.size} elements beyond it"
    elif mean > mean_limit:
        reason = f"off by {mean:.3g} on average (root mean square), allowed {mean_limit:.3g}"
    row |= {
        "max_abs": magnitude(off),
        "max_rel": float(np.max(relative, initial=0.0)),
        "cosine": float(np.sum(want * got) / norms) if norms else None,
        "max_ulp": float(np.max(ulps, initial=0.0)),
        "allowed": limit,
        "ratio": max(_share(farthest, limit), _share(mean, mean_limit)),
        "at": [int(i) for i in np.unravel_index(at, want.shape)] if off.size else [],
        "want": float(want.reshape(-1)[at]) if off.size else None,
        "got": float(got.reshape(-1)[at]) if off.size else None,
    }
    return {**row, "reason": reason}


def _without_few(off: Any, number: int, most: float) -> Any:
    """All but so many of the largest, where none is off by more than `most`."""
    if number == 0 or magnitude(off) > most:
        return off
    return np.partition(off, -number, axis=None)[:-number]


def _share(off: float, limit: float) -> float:
    return off / limit if limit else (float("inf") if off else 0.0)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    golden, run = Tensors(Path(spec["golden"])), Tensors(Path(spec["run"]))
    roundings = [Tensors(Path(path)) for path in spec["roundings"]]
    among: dict[str, float] = {}
    for pair in spec["pairs"]:
        if pair.get("among"):
            largest = magnitude(golden.read(pair["golden"])[0])
            among[pair["among"]] = max(largest, among.get(pair["among"], 0.0))
    how = (golden, roundings, run, spec["units"], among)
    rows = [compare(pair, *how) for pair in spec["pairs"]]
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
