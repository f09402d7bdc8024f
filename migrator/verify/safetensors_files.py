"""Safetensors files: checks that they are complete, and comparisons of their tensors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .in_target_python import ask

_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
    "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_SECONDS = 600.0  # seconds for a comparison


class Damaged(ValueError):
    """The file is not a complete safetensors file; the text says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a value or a tensor is from the golden's. None where a number makes no sense.

    ``ratio`` is the largest difference by what is allowed; ``allowed`` is None where that differs
    from element to element. ``mismatch`` is the fraction of elements beyond it. ``max_ulp`` is in
    units in the last place of the golden's values, of those that exceed what is allowed.
    """

    ratio: float = float("inf")
    reason: str | None = None  # why it failed
    want: float | None = None  # where the difference is largest, like ``got`` and ``at``
    got: float | None = None
    at: Sequence[int] = ()
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    max_ulp: float | None = None
    mismatch: float | None = None
    allowed: float | None = None
    elements: int = 1  # the number of compared elements
    shape: Sequence[int] = ()
    dtype: str = ""
    got_dtype: str = ""
    free: bool = False  # it may be off that far because nothing but rounding moved it

    @property
    def passed(self) -> bool:
        return self.reason is None


def read_header(path: Path) -> dict[str, Any]:
    """The tensors listed in a safetensors file's header.

    Raises Damaged if the file doesn't match its header.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise Damaged(f"{path} is truncated, or not a safetensors file")
            header: dict[str, Any] = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for entry in header.values():
            start, end = entry["data_offsets"]
            count = 1
            for extent in entry["shape"]:
                count *= extent
            known = entry["dtype"] in _BYTES
            whole = not known or end - start == count * _BYTES[entry["dtype"]]
            if not (0 <= start <= end and whole):
                raise Damaged(f"{path} is damaged: sizes in its header do not agree")
        if 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0) != size:
            raise Damaged(f"{path} is damaged: it is not as long as its header says")
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"{path} is damaged, or not a safetensors file") from error
    return header


def header(entries: Mapping[str, Any]) -> bytes:
    """The header of a safetensors file with these tensors."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def compare_tensors(
    golden: Path,
    run: Path,
    pairs: Sequence[dict[str, Any]],
    python: Path,
    folder: Path,
    roundings: Sequence[Path] = (),
    units: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """The fields of Difference for each of ``pairs``, by ``python``, which needs NumPy.

    For pairs see `compare_files.py`. A file for it is written to ``folder``. Raises VerifyError.
    """
    if not pairs:
        return []
    spec = {
        "golden": str(golden.absolute()),
        "run": str(run.absolute()),
        "roundings": [str(path.absolute()) for path in roundings],
        "units": dict(units or {}),
        "pairs": pairs,
    }
    path = folder / "compare.json"
    path.write_text(json.dumps(spec), "utf-8")
    answer = ask(python, "compare_files.py", [str(path.absolute())], timeout=_SECONDS, cwd=folder)
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def compare_outputs(
    golden: Path, outputs: Path, tolerances: Mapping[str, Any], python: Path, folder: Path
) -> dict[str, dict[str, Any]]:
    """The fields of Difference for each tensor of either file, by name, in the golden's order.

    ``tolerances``: by name, the fields of a Tolerance. Raises Damaged and VerifyError.
    """
    want, got = read_header(golden), read_header(outputs)
    both = [name for name in want if name in got and name in tolerances]
    pairs = [{"golden": name, "run": name, "stated": tolerances[name]} for name in both]
    rows = dict(zip(both, compare_tensors(golden, outputs, pairs, python, folder), strict=True))
    found = {}
    for name in [*want, *(name for name in got if name not in want)]:
        present = want.get(name) or got[name]
        reason = "no tolerance is stated for it in app.toml"
        if name not in got:
            reason = "missing: the script did not write it"
        elif name not in want:
            reason = "extra: the golden has no such output"
        nothing = {"shape": present["shape"], "elements": 0, "reason": reason}
        found[name] = rows.get(name, nothing)
    return found
