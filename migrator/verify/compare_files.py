"""Compares tensors of two safetensors files, pair by pair.

Runs inside a target's interpreter (needs NumPy there), so it is self-contained. Its argument is a
JSON file: ``golden`` and ``run``, paths; ``roundings``, the paths of runs of the original with
different rounding; ``units`` by dtype; ``pairs``, each with the names of two tensors (``golden``,
``run``) and their tolerance. That is either stated or measured:

* ``stated``: ``atol``, ``rtol``, ``max_mismatch``, ``nonfinite``, ``any_width`` of an app.toml.
* Measured: ``roundings``, the tensor's names in these runs, or null; ``rounded``, see
  ``_measured``; ``factor`` of the tolerance and ``growth`` of its unit (default 1); ``few`` and
  ``one_of``, see ``_few``; ``moved``, ``gain`` and ``steps``, see ``_movement``; ``start``, the
  golden's tensor with the first values; ``follows``, such tensors, see ``_following``;
  ``infinite``, the golden's tensor whose Inf may stay; ``among``, a name shared by tensors that are
  judged by the largest of them, because one alone may be zero except for rounding; ``squares``,
  whether they are squares, whose rounding is that of their roots, squared; ``decided``, the share
  of integers that may differ as decisions (default 0).

Prints one line of JSON, ``{"rows": […]}``: a row for each pair.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

np: Any = import_module("numpy")  # by name: the migrator's type check does without it

# safetensors name: (numpy name of the stored bytes, unit in the last place of 1)
_FLOATS = {
    "F64": ("<f8", 2.0**-52),
    "F32": ("<f4", 2.0**-23),
    "F16": ("<f2", 2.0**-10),
    "BF16": ("<u2", 2.0**-7),
}
_SIGNED = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1"}
_OTHERS = {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "<u1"}
_STORED = {**{name: stored for name, (stored, _) in _FLOATS.items()}, **_SIGNED, **_OTHERS}
_ROUNDED_UP = 1.01  # because the limit comes from rounded numbers
_TINY = 2.0**-126  # smaller numbers may be flushed to 0
# Types that a back end may use instead of the golden's: it may lack 64 bits, or float16.
_INSTEAD = {("F64", "F32"), ("F16", "BF16")}


class TensorFile:
    """A safetensors file; tensors are read one by one."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self.header: dict[str, Any] = json.loads(file.read(length))
        self.start = 8 + length

    def read(self, name: str) -> Any:
        """Values as float64, or integers as they are stored."""
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + begin)
            raw = np.frombuffer(file.read(end - begin), _STORED[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        values = raw.astype(np.float64) if entry["dtype"] in _FLOATS else raw
        return values.reshape(entry["shape"])


class FileComparison:
    """Two files, and the settings for all their pairs of tensors."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.golden, self.run = TensorFile(spec["golden"]), TensorFile(spec["run"])
        self.roundings = [TensorFile(path) for path in spec.get("roundings", [])]
        self.units = spec.get("units", {})
        self.pairs = spec["pairs"]
        self.among: dict[str, float] = {}
        self.farthest: dict[str, float] = {}  # by first values: how far from them one was so far
        for pair in self.pairs:
            if name := pair.get("among"):
                largest = magnitude(self.golden.read(pair["golden"]))
                self.among[name] = max(largest, self.among.get(name, 0.0))

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(pair) for pair in self.pairs]

    def _row(self, pair: dict[str, Any]) -> dict[str, Any]:
        theirs, ours = self.golden.header[pair["golden"]], self.run.header[pair["run"]]
        row: dict[str, Any] = {
            "shape": theirs["shape"],
            "dtype": dtype_name(theirs["dtype"]),
            "got_dtype": dtype_name(ours["dtype"]),
            "elements": 0,
        }
        if reason := _unlike(theirs, ours, pair.get("stated")):
            return {**row, "reason": reason}
        want, got = self.golden.read(pair["golden"]), self.run.read(pair["run"])
        row["elements"] = int(want.size)
        if not want.size:
            return {**row, "reason": None, "ratio": 0.0}
        if theirs["dtype"] in _FLOATS:
            odd = ~(np.isfinite(want) & np.isfinite(got))
            own = odd & self._own(pair, want, got) if odd.any() else odd
            if number := int(np.sum(odd & ~own)):
                return {**row, "reason": f"{number} NaN or Inf, {_whose(want, got)}"}
            want, got = np.where(own, 0.0, want), np.where(own, 0.0, got)
            off = np.abs(got - want)
            finite = want.size - int(np.sum(own))
        else:
            off, finite = _distance(got, want).astype(np.float64), int(want.size)
            want, got = want.astype(np.float64), got.astype(np.float64)
        if "stated" in pair:
            verdict = _stated(pair, want, off)
        else:
            verdict = self._measured(pair, want, got, off)
        floor = verdict.pop("floor")
        row |= _numbers(want, got, off, finite)
        if theirs["dtype"] in _FLOATS:
            row["cosine"] = _cosine(want, got)
            steps = (_FLOATS[entry["dtype"]][1] for entry in (theirs, ours))
            row["max_ulp"] = _ulps(want, off, max(steps), floor)
        return {**row, **verdict}

    def _own(self, pair: dict[str, Any], want: Any, got: Any) -> Any:
        """Where NaN and Inf are right: both have them, and they are declared or the program's."""
        if "stated" in pair:
            same = (want == got) | (np.isnan(want) & np.isnan(got))
            return same if pair["stated"]["nonfinite"] else np.zeros_like(same)
        none = np.zeros(want.shape, bool)
        if pair.get("infinite") is None:
            return none
        first = self.golden.read(pair["infinite"])  # as in a mask
        same = first.shape == want.shape
        return np.isinf(first) & (first == want) & (want == got) if same else none

    def _measured(self, pair: dict[str, Any], want: Any, got: Any, off: Any) -> dict[str, Any]:
        """Judge the largest difference, and the root mean square of all; how far a weight moved.

        Each may be ``unit`` times the tensor's own, for sums in another order, plus ``rounded``
        times the most that different rounding has changed in the original: which elements change
        most is chance, but not by how much. Integers must be equal, except for decisions: some may
        differ in proportion to those that rounding changed, and in a large tensor one always.
        """
        dtypes = self.golden.header[pair["golden"]]["dtype"], self.run.header[pair["run"]]["dtype"]
        if dtypes[0] not in _FLOATS:
            wrong = int(np.sum(off > 0))
            moved = (int(np.sum(again != want)) for again in self._again(pair, want.shape))
            share = pair.get("decided", 0) * pair.get("growth", 1.0)
            most = min(pair["rounded"] * max(moved, default=0), share * off.size)
            if share and off.size >= pair["one_of_decisions"]:
                most = max(most, 1)
            reason = f"{wrong} of {off.size} values differ" if wrong > most else None
            ratio = wrong / most if most else float("inf") if wrong else 0.0
            return {"reason": reason, "ratio": ratio, "floor": 0.0, "mismatch": wrong / off.size}
        unit = max(self.units[dtype] for dtype in dtypes) * pair.get("growth", 1.0)
        among = self.among.get(pair.get("among", ""), 0.0) * (unit if pair.get("squares") else 1)
        among = max(among, self._deviation(pair["golden"]))
        farthest = mean = 0.0
        others = self._again(pair, want.shape)
        for again in others:
            with np.errstate(invalid="ignore"):
                moved = again - want
            moved = np.where(np.isfinite(moved), moved, 0.0)
            farthest, mean = max(farthest, magnitude(moved)), max(mean, root_mean_square(moved))
        factor = pair.get("factor", 1.0)
        limit = _TINY + unit * max(magnitude(want), among) + pair["rounded"] * farthest
        mean_limit = _TINY + unit * max(root_mean_square(want), among) + pair["rounded"] * mean
        follows = self._following(pair, want.shape)
        limit, mean_limit = factor * limit + follows, factor * mean_limit + follows
        start = self._start(pair, want)
        if start is not None:
            far = [magnitude(value - start) for value in (want, *others)]
            self.farthest[pair["start"]] = max(*far, self.farthest.get(pair["start"], 0.0))
        ratio, unlike = self._movement(pair, want, got, start, others, mean)
        judged = self._without_few(pair, want, off, start)
        farthest, mean = magnitude(judged), root_mean_square(judged)
        beyond = int(np.sum(off > limit))
        reason = None
        if farthest > limit:
            reason = f"{beyond} of {off.size} elements beyond the tolerance"
        elif mean > mean_limit:
            reason = f"off by {mean:.3g} on average (root mean square), allowed {mean_limit:.3g}"
        return {
            "reason": reason or unlike,
            "ratio": max(farthest / limit, mean / mean_limit, ratio),
            "allowed": limit,
            "floor": limit,
            "mismatch": beyond / off.size,
            "free": magnitude(off) > limit - follows and (pair.get("few", 0) >= 1 or follows > 0),
        }

    def _start(self, pair: dict[str, Any], want: Any) -> Any:
        """What a weight was at first; None for other values, or where that isn't known."""
        if not pair.get("few") or not pair.get("start"):
            return None
        start = self.golden.read(pair["start"])
        return start if start.shape == want.shape else None

    def _movement(
        self, pair: dict[str, Any], want: Any, got: Any, start: Any, others: list[Any], mean: float
    ) -> tuple[float, str | None]:
        """Judge how far a weight moved since the start: the share of what is allowed, and why not.

        An optimizer such as Adam turns rounding into whole steps of single elements, and what is
        allowed for these hides a wrong learning rate. The root mean square of all changes doesn't
        hide it. Elements that rounding flips may also not move at all, or as far as others.
        Left out are weights of which rounding flips more than half, such as a bias before
        BatchNorm, all weights where its effect is not known, and BatchNorm's statistics.
        ``mean``: how far rounding moved ``want``, in the worst of the ``others``. Elements that may
        be off by more, see `_few`, count as flipped after several ``steps``.
        """
        statistic = pair["golden"].rpartition(".")[2].startswith("running_")
        if not pair.get("moved") or start is None or not others or statistic:
            return 0.0, None
        if pair["few"] >= 1:  # nothing tells how far steps of rounding lead
            return 0.0, None
        moved = root_mean_square(want - start)
        few = (
            _tolerated_elements(pair, want.size) if pair["steps"] > 1 else 0
        )  # one step turned is as long
        flips = float(np.hypot(pair["gain"] * mean, 2 * moved * (few / want.size) ** 0.5))
        if not moved or flips > moved:
            return 0.0, None
        spread = max(abs(root_mean_square(again - start) - moved) for again in others)
        dtypes = self.golden.header[pair["golden"]]["dtype"], self.run.header[pair["run"]]["dtype"]
        stored = max(_FLOATS[dtype][1] for dtype in dtypes) * root_mean_square(want)
        limit = pair["moved"] * moved + flips**2 / (2 * moved) + pair["rounded"] * spread + stored
        limit *= pair.get("factor", 1.0)
        ours = root_mean_square(got - start)
        ratio = abs(ours - moved) / limit
        if ratio <= 1:
            return ratio, None
        how = f"moved by {ours:.3g} since the start (root mean square)"
        return ratio, f"{how}, in the golden by {moved:.3g}, allowed ± {limit:.3g}"

    def _deviation(self, name: str) -> float:
        """For BatchNorm's running mean, which may be zero except for rounding; otherwise 0."""
        module, of_mean, _ = name.rpartition("running_mean")
        variance = f"{module}running_var"
        if not of_mean or not name.endswith(of_mean) or variance not in self.golden.header:
            return 0.0
        return float(np.sqrt(magnitude(self.golden.read(variance))))

    def _without_few(self, pair: dict[str, Any], want: Any, off: Any, start: Any) -> Any:
        """A weight's differences without the largest, see `_few`.

        If a gradient is zero except for rounding, an optimizer that divides by its size makes a
        whole step, up or down. So the differences left out may be at most twice the distance from
        the start; where all elements may be left out, at most what `_range` says, because steps up
        and down that cancel each other here need not do so there.
        """
        if not pair.get("few"):
            return off
        number = _tolerated_elements(pair, off.size)
        most = magnitude(want) if start is None else 2 * magnitude(want - start)
        if pair["few"] >= 1 and start is not None:
            most = self._range(pair["start"], pair["steps"])
        if number == 0 or magnitude(off) > _ROUNDED_UP * most:
            return off
        return np.partition(off, -number, axis=None)[:-number]

    def _range(self, start: str, steps: int) -> float:
        """How far values may be off if each step that led from their ``start`` may lead up or
        down: no step is known to be longer than the farthest that any run was from there."""
        return 2 * max(steps, 1) * self.farthest.get(start, 0.0)

    def _following(self, pair: dict[str, Any], shape: tuple[int, ...]) -> float:
        """How far a running mean may be off because it is of something that a weight is added to
        whose gradient may be nothing but rounding. That one has a value for each of the means."""
        starts = [n for n in pair.get("follows", ()) if self.golden.header[n]["shape"] == [*shape]]
        return max((self._range(start, pair["steps"]) for start in starts), default=0.0)

    def _again(self, pair: dict[str, Any], shape: tuple[int, ...]) -> list[Any]:
        return [
            file.read(name)
            for file, name in zip(self.roundings, pair["roundings"], strict=True)
            if name in file.header and file.header[name]["shape"] == list(shape)
        ]


def _tolerated_elements(pair: dict[str, Any], size: int) -> int:
    """How many elements may be off by more: a share; one, if that is ``one_of`` or more."""
    expected = pair["few"] * size
    return max(int(expected), int(expected >= pair["one_of"]))


def dtype_name(dtype: str) -> str:
    """PyTorch's name of a dtype; safetensors' own if this script can't read it."""
    if dtype not in _STORED or dtype == "BOOL":
        return dtype.lower()
    for short, long in (("BF", "bfloat"), ("F", "float"), ("U", "uint"), ("I", "int")):
        if dtype.startswith(short):
            return dtype.replace(short, long, 1)
    return dtype


def _unlike(want: dict[str, Any], got: dict[str, Any], stated: dict[str, Any] | None) -> str | None:
    """Why two tensors can't be compared."""
    if want["shape"] != got["shape"]:
        return f"shape {got['shape']}, golden {want['shape']}"
    dtypes = want["dtype"], got["dtype"]
    any_width = stated is None or stated["any_width"]
    instead = (any_width and set(dtypes) <= set(_SIGNED)) or (stated is None and dtypes in _INSTEAD)
    if dtypes[0] != dtypes[1] and not instead:
        return f"dtype {dtype_name(dtypes[1])}, golden {dtype_name(dtypes[0])}"
    return (
        None if set(dtypes) <= set(_STORED) else f"dtype {dtype_name(dtypes[1])} cannot be compared"
    )


def _stated(pair: dict[str, Any], want: Any, off: Any) -> dict[str, Any]:
    """An element agrees if |got - want| <= atol + rtol |want|; a share of them need not."""
    stated = pair["stated"]
    limit = stated["atol"] + stated["rtol"] * np.abs(want)
    beyond = int(np.sum(off > limit))
    mismatch = beyond / off.size
    wrong = mismatch > stated["max_mismatch"]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(off == 0, 0.0, off / limit)
    if excused := int(stated["max_mismatch"] * off.size):
        shares = np.partition(shares, -excused, axis=None)[:-excused]
    return {
        "reason": f"{beyond} of {off.size} elements beyond the tolerance" if wrong else None,
        "ratio": float(shares.max(initial=0.0)),
        "floor": stated["atol"],
        "mismatch": mismatch,
    }


def _numbers(want: Any, got: Any, off: Any, finite: int) -> dict[str, Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(want != 0, off / np.abs(want), 0.0)
    at = int(np.argmax(off))
    return {
        "max_abs": magnitude(off) if finite else None,
        "mean_abs": float(off.sum() / finite) if finite else None,
        "max_rel": float(np.max(relative, initial=0.0)),
        "want": float(want.reshape(-1)[at]),
        "got": float(got.reshape(-1)[at]),
        "at": [int(i) for i in np.unravel_index(at, want.shape)],
    }


def _whose(want: Any, got: Any) -> str:
    """Which of the two tensors has NaN or Inf."""
    if np.isfinite(want).all():
        return "only here"
    if np.isfinite(got).all():
        return "only in the golden"
    odd = ~(np.isfinite(want) & np.isfinite(got))
    same = np.array_equal(want[odd], got[odd], equal_nan=True)
    return "both have" if same else "at other places than in the golden"


def _cosine(want: Any, got: Any) -> float | None:
    norms = float(np.linalg.norm(want) * np.linalg.norm(got))
    return float(np.sum(want * got) / norms) if norms else None


def _ulps(want: Any, off: Any, step: float, floor: float) -> float | None:
    """The largest difference in units in the last place of the golden's value, where that exceeds
    what is allowed: below that, such a number says nothing."""
    there = np.abs(want) > max(floor, _TINY)
    if not there.any():
        return None
    return float(np.max(off[there] / (step * 2.0 ** np.floor(np.log2(np.abs(want[there]))))))


def magnitude(values: Any) -> float:
    """The largest finite absolute value."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def root_mean_square(values: Any) -> float:
    """Of the finite values."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _distance(a: Any, b: Any) -> Any:
    """|a - b| of integers as uint64; exact even where int64 would overflow."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    return high.astype(np.uint64) - low.astype(np.uint64)


if __name__ == "__main__":
    print(
        json.dumps(
            {"rows": FileComparison(json.loads(Path(sys.argv[1]).read_text("utf-8"))).rows()}
        )
    )
