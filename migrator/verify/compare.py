"""Compares two safetensors files number by number.

Runs inside a target's interpreter (needs numpy there), so it is self-contained: one argument, a
JSON file with ``golden`` and ``outputs`` (paths) and ``tolerances`` (by output name: atol, rtol,
max_mismatch, nonfinite, any_width); prints one JSON line ``{"error": …, "outputs": […]}``. Reading
a header needs only the standard library, so the migrator uses that part itself.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# safetensors name: (numpy name of the stored bytes, mantissa bits or None)
_DTYPES = {
    "F64": ("<f8", 64),
    "F32": ("<f4", 32),
    "F16": ("<f2", 16),
    "BF16": ("<u2", 16),
    "I64": ("<i8", None),
    "I32": ("<i4", None),
    "I16": ("<i2", None),
    "I8": ("<i1", None),
    "U64": ("<u8", None),
    "U32": ("<u4", None),
    "U16": ("<u2", None),
    "U8": ("<u1", None),
    "BOOL": ("<u1", None),
}
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"}


def _numpy() -> Any:
    """Imported late and by name: the migrator, and its type check, do without numpy."""
    return import_module("numpy")


class Damaged(ValueError):
    """The file is not a whole safetensors file; the text says why, in one line."""


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The tensors that a safetensors file says it holds, and where their bytes start.

    Raises Damaged where the file is not what its header says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise Damaged(f"{path} is cut short or no safetensors file")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for entry in header.values():
            start, end = entry["data_offsets"]
            count = 1
            for extent in entry["shape"]:
                count *= extent
            known = entry["dtype"] not in _DTYPES or end - start == count * _width(entry["dtype"])
            if not (0 <= start <= end and known):
                raise Damaged(f"{path} is damaged: sizes in its header do not agree")
        if 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0) != size:
            raise Damaged(f"{path} is damaged: it is not as long as its header says")
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"{path} is damaged or no safetensors file") from error
    return header, 8 + length


def _width(dtype: str) -> int:
    return int(_DTYPES[dtype][0][-1])


def _load(path: Path, entry: dict[str, Any], start: int) -> Any:
    np = _numpy()

    begin, end = entry["data_offsets"]
    with path.open("rb") as file:
        file.seek(start + begin)
        data = file.read(end - begin)
    return np.frombuffer(data, dtype=_DTYPES[entry["dtype"]][0])


def compare_files(golden: Path, outputs: Path, tolerances: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each output of either file, in the golden's order; raises Damaged."""
    want, want_start = read_header(golden)
    got, got_start = read_header(outputs)
    rows = []
    for name in [*want, *(name for name in got if name not in want)]:
        ours, theirs = got.get(name), want.get(name)
        present = ours or theirs or {}
        dtype = present["dtype"]
        row = {"name": name, "shape": present["shape"], "dtype": _NAMES.get(dtype, _word(dtype))}
        reason = _not_comparable(ours, theirs, tolerances.get(name))
        if reason or ours is None or theirs is None:
            rows.append({**row, "passed": False, "reason": reason})
            continue
        numbers = compare_arrays(
            _load(outputs, ours, got_start),
            _load(golden, theirs, want_start),
            dtype,
            tolerances[name],
        )
        rows.append({**row, **numbers})
    return rows


def _word(dtype: str) -> str:
    return dtype.replace("U", "uint", 1).replace("I", "int", 1) if dtype[0] in "UI" else dtype


def _not_comparable(
    ours: dict[str, Any] | None, theirs: dict[str, Any] | None, tolerance: dict[str, Any] | None
) -> str | None:
    if ours is None:
        return "missing: the script did not write it"
    if theirs is None:
        return "extra: the golden has no such output"
    if ours["shape"] != theirs["shape"]:
        return f"shape {ours['shape']}, golden {theirs['shape']}"
    signed = ours["dtype"][0] == theirs["dtype"][0] == "I"
    any_width = signed and tolerance is not None and tolerance.get("any_width", False)
    if ours["dtype"] != theirs["dtype"] and not any_width:
        return f"dtype {ours['dtype']}, golden {theirs['dtype']}"
    if ours["dtype"] not in _DTYPES:
        return f"dtype {ours['dtype']} cannot be compared"
    return None if tolerance is not None else "no tolerance is stated for it in app.toml"


def compare_arrays(got: Any, want: Any, dtype: str, tolerance: dict[str, Any]) -> dict[str, Any]:
    """Compare stored values of one dtype; an element agrees if |got - want| <= atol + rtol |want|.

    NaN and Inf agree only where the tolerance declares them (``nonfinite``) and both have the same
    at the same place; they are left out of the differences. ``max_ulp`` looks at finite pairs of
    one sign whose golden value exceeds atol: below that, the distance says nothing.
    """
    np = _numpy()

    bits = _DTYPES[dtype][1]
    if bits is None:
        difference, ulp = _distance(got, want).astype(np.float64), None
        magnitude = np.abs(want.astype(np.float64))
        odd = np.zeros(want.shape, bool)
        bad_nonfinite = 0
    else:
        a, b = _as_float64(got, dtype), _as_float64(want, dtype)
        odd = ~(np.isfinite(a) & np.isfinite(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        bad_nonfinite = int(np.sum(odd & ~same)) if tolerance["nonfinite"] else int(np.sum(odd))
        with np.errstate(invalid="ignore"):
            difference = np.where(odd, 0.0, np.abs(a - b))
            magnitude = np.where(odd, 0.0, np.abs(b))
        comparable = ~odd & (np.sign(a) == np.sign(b)) & (magnitude > tolerance["atol"])
        steps = _distance(_ordered(got, bits), _ordered(want, bits))[comparable]
        ulp = int(steps.max()) if steps.size else None
    limit = tolerance["atol"] + tolerance["rtol"] * magnitude
    beyond = int(np.sum(difference > limit))
    finite = difference.size - int(np.sum(odd))
    mismatch = beyond / difference.size if difference.size else 0.0
    reason = None
    if bad_nonfinite:
        reason = f"{bad_nonfinite} NaN or Inf"
    elif mismatch > tolerance["max_mismatch"]:
        reason = f"{beyond} of {difference.size} elements beyond the tolerance"
    return {
        "passed": reason is None,
        "reason": reason,
        "elements": int(difference.size),
        "max_abs": float(difference.max()) if finite else None,
        "mean_abs": float(difference.sum() / finite) if finite else None,
        "max_ulp": ulp,
        "mismatch": mismatch,
        "of_tolerance": None if bad_nonfinite else _share(difference, limit, tolerance),
    }


def _share(difference: Any, limit: Any, tolerance: dict[str, Any]) -> float | None:
    """The largest difference by what is allowed, but for the elements that may disagree; None where
    a difference is allowed nothing."""
    np = _numpy()

    excused = int(tolerance["max_mismatch"] * difference.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(difference == 0, 0.0, difference / limit)
    if excused:
        shares = np.sort(shares.reshape(-1))[: shares.size - excused]
    largest = float(shares.max(initial=0.0))
    return largest if np.isfinite(largest) else None


def _as_float64(stored: Any, dtype: str) -> Any:
    np = _numpy()

    if dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float64)


def _ordered(stored: Any, bits: int) -> Any:
    """Integers in the order of the floats, one apart from neighbour to neighbour; -0 is 0."""
    np = _numpy()

    number = stored.view(f"<i{bits // 8}").astype(np.int64)
    return np.where(number < 0, -(number & ((1 << (bits - 1)) - 1)), number)


def _distance(a: Any, b: Any) -> Any:
    """|a - b| of integers as uint64; exact even where int64 would overflow."""
    np = _numpy()

    high, low = np.maximum(a, b), np.minimum(a, b)
    return high.astype(np.uint64) - low.astype(np.uint64)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer: dict[str, Any] = {"error": None, "outputs": []}
    try:
        answer["outputs"] = compare_files(
            Path(spec["golden"]), Path(spec["outputs"]), spec["tolerances"]
        )
    except Damaged as error:
        answer["error"] = str(error)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
