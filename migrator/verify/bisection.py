"""Finds the first module and operation in which a migrated script differs from its original.

Three runs record every operation of the step in which the comparison failed: the original, the
original with different rounding, and the migrated script operator by operator. Operations are
paired by module, call and name. The first pair, in the original's order, that differs by more than
rounding is shown. Gradients are recorded after the forward pass, so the first one that differs is
the one closest to the loss; the culprit is the operation that took the tensor it belongs to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from .recordings import Recording
from .safetensors_files import compare_tensors
from .tolerances import ROUNDED, Tolerances

_MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
_AS_GOOD = {("float64", "float32"), ("float16", "bfloat16")}  # replaced by this type on a TPU
_ARITHMETIC = {
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "pow",
    "mod",
    "and",
    "or",
    "xor",
}
_SHOWN = 5  # operations that only one of the two has

Event = dict[str, Any]


@dataclass(frozen=True)
class TracePlace:
    """A place in one of the two programs. ``operation``: "" if this program lacks it."""

    operation: str
    line: str  # FILE:NUMBER
    text: str
    made: str = ""  # where the module was created, for modules of libraries
    made_text: str = ""


@dataclass(frozen=True)
class BisectedEdit:
    """An edit of the migration, or a diagnostic, that touches the statement."""

    codes: list[str]
    messages: list[str]
    before: list[str]
    after: list[str]


@dataclass(frozen=True)
class Bisection:
    """The first difference inside of a step. ``problem``: why none was found."""

    step: int
    problem: str | None = None
    module: str = ""  # "": the script itself
    what: str = ""  # "output", "input", "buffer" or "gradient"
    name: str = ""  # of the parameter, the buffer or the part of the output
    reason: str = ""
    original: TracePlace | None = None
    migrated: TracePlace | None = None
    want: float | None = None
    got: float | None = None
    allowed: float | None = None
    at: Sequence[int] = ()
    agreed: int = 0  # tensors compared before it
    differences: list[str] = field(default_factory=list)  # among the operation's inputs
    edits: list[BisectedEdit] = field(default_factory=list)

    @property
    def found(self) -> bool:
        return self.original is not None or self.migrated is not None

    @property
    def is_earlier(self) -> bool:
        """Whether the cause may be in an earlier step, because this one began with another
        state."""
        return self.what == "input" and bool(self.name)


class _Trace:
    """The events of one run, by the object they belong to."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.operations: dict[int, Event] = {}
        self.groups: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self.modules: dict[tuple[str, int], Event] = {}
        self.gradients: dict[tuple[int, str, int], Event] = {}
        self.takers: dict[tuple[int, str], list[Event]] = defaultdict(list)
        seen: Counter[tuple[int, str]] = Counter()
        for event in events:
            if event["kind"] == "op":
                self.operations[event["number"]] = event
                self.groups[event["module"], event["call"]].append(event)
                for source in event["inputs"].values():
                    if source is not None:
                        self.takers[source[0], source[1]].append(event)
            elif event["kind"] == "module":
                self.modules[event["name"], event["call"]] = event
            elif event["kind"] == "grad":
                key = event["of"], event["place"]
                seen[key] += 1
                event["turn"] = seen[key]
                self.gradients[(*key, seen[key])] = event

    def pairs(self, other: _Trace) -> dict[int, int]:
        """Pairs of operations that both runs have."""
        found = {}
        for key, ours in self.groups.items():
            theirs = other.groups.get(key, [])
            names = [[_plain_operation(e["name"]) for e in events] for events in (ours, theirs)]
            matcher = SequenceMatcher(None, names[0], names[1], autojunk=False)
            for first, second, size in matcher.get_matching_blocks():
                for offset in range(size):
                    found[ours[first + offset]["number"]] = theirs[second + offset]["number"]
        return found

    def counterpart(self, event: Event, pairs: dict[int, int]) -> Event | None:
        """This run's counterpart of another run's event, given the pairs."""
        if event["kind"] == "op":
            return self.operations.get(pairs.get(event["number"], 0))
        if event["kind"] == "module":
            return self.modules.get((event["name"], event["call"]))
        return self.gradients.get((pairs.get(event["of"], 0), event["place"], event["turn"]))


def _plain_operation(name: str) -> str:
    """torch.add, Tensor.add_, Tensor.__iadd__ and __radd__ are the same operation."""
    last = name.rpartition(".")[2]
    plain = last.strip("_")
    if last.startswith("__") and plain[0] in "ir" and plain[1:] in _ARITHMETIC:
        plain = plain[1:]
    return {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul",
            "subtract": "sub"}.get(plain, plain)  # fmt: skip


@dataclass(frozen=True)
class _Check:
    """A tensor of both runs, or a gradient that only the original has (`here` is None)."""

    event: Event
    here: Event | None
    group: str
    path: str
    rows: list[int]  # of the table of comparisons


@dataclass
class _Search:
    golden: _Trace
    run: _Trace
    pairs: dict[int, int]

    def __post_init__(self) -> None:
        self.back = {ours: theirs for theirs, ours in self.pairs.items()}

    def lost(self, start: Event) -> Event | None:
        """The nearest operation above that takes a tensor with a gradient and returns one
        without."""
        queue, seen = [start], {start["number"]}
        while queue:
            event = queue.pop(0)
            if event["wanted"] and not event["wants"] and self._had(event):
                return event
            for source in event["inputs"].values():
                if source is not None and source[0] not in seen and source[1][:5] != "reads":
                    seen.add(source[0])
                    queue.append(self.run.operations[source[0]])
        return None

    def _had(self, event: Event) -> bool:
        """Whether the original has no such operation, or a gradient in it."""
        theirs = self.back.get(event["number"])
        return theirs is None or bool(self.golden.operations[theirs]["wants"])

    def blamed(self, gradient: Event) -> tuple[Event | None, Event | None]:
        """The operations, of both programs, that do not pass a gradient to the tensor."""
        made = self.golden.operations[gradient["of"]]
        ours = self.run.operations.get(self.pairs.get(gradient["of"], 0))
        if ours is not None and gradient["place"][:5] != "reads" and not ours["wants"]:
            cut = self.lost(ours) or ours
            return self._of_golden(cut), cut
        theirs = self.golden.takers[gradient["of"], gradient["place"]]
        takers = self.run.takers[ours["number"], gradient["place"]] if ours is not None else []
        if gradient["place"][:5] == "reads":
            theirs = theirs or [made]
        for event in takers:
            if event["number"] not in self.back and (event["wants"] or event["wanted"]):
                return None, event
        for event in theirs:
            if event["number"] not in self.pairs and event["wants"]:
                return event, None
        passing = [event for event in theirs if event["wants"]] or [made]
        chosen = passing[-1]
        return chosen, self.run.operations.get(self.pairs.get(chosen["number"], 0))

    def _of_golden(self, event: Event) -> Event | None:
        return self.golden.operations.get(self.back.get(event["number"], 0))


def locate(
    golden: Recording, rounded: Sequence[Recording], run: Recording, python: Path, folder: Path
) -> Bisection:
    """The first difference between two recordings of one step (`recorder/operation_traces.py`).

    ``python`` needs NumPy; files go to ``folder``. Raises VerifyError where they can't be compared.
    """
    theirs, ours = _Trace(golden.events), _Trace(run.events)
    again = [_Trace(recording.events) for recording in rounded]
    search = _Search(theirs, ours, theirs.pairs(ours))
    keys: list[dict[str, Any]] = []
    checks = list(_checks(search, again, keys))
    tolerances = Tolerances(tf32=any(r.machine.get("tf32") for r in (golden, *rounded)))
    rows = compare_tensors(
        golden.path, run.path, keys, python, folder, [r.path for r in rounded], tolerances.units
    )
    for row in rows:
        if row["reason"] is None and _is_narrower(row["dtype"], row["got_dtype"]):
            row["reason"] = f"{row['got_dtype']}, in the original {row['dtype']}"
    step = golden.events[0]["step"] if golden.events else 0
    agreed = 0
    for check in checks:
        found = [rows[number] for number in check.rows]
        if check.here is not None and not any(row["reason"] for row in found):
            agreed += len(found[:1])
            continue
        return replace(_found(search, check, found), step=step, agreed=agreed)
    if not agreed:
        return Bisection(step, problem="no operation was seen in both runs")
    return Bisection(step, agreed=agreed, problem=f"all {agreed} tensors of the step agree")


def _is_narrower(golden: str, run: str) -> bool:
    if golden not in _MANTISSA or run not in _MANTISSA or (golden, run) in _AS_GOOD:
        return False
    return _MANTISSA[run] < _MANTISSA[golden]


def _checks(
    search: _Search, again: Sequence[_Trace], keys: list[dict[str, Any]]
) -> Iterator[_Check]:
    """The checks in the original's order; adds the compared tensors to ``keys``."""
    rounded = [(trace, search.golden.pairs(trace)) for trace in again]
    for event in search.golden.events:
        here = search.run.counterpart(event, search.pairs)
        others = [trace.counterpart(event, pairs) or {} for trace, pairs in rounded]
        if here is None:
            if event["kind"] == "grad" and event["of"] in search.pairs:
                yield _Check(event, None, "tensors", "", [])
            continue
        for group in ("reads", "tensors", "writes"):
            for path, sample in event.get(group, {}).items():
                mine = here[group].get(path)
                if mine is None:
                    continue
                numbers = []
                for part in ("values", "sums"):
                    if part in sample and part in mine:
                        numbers.append(len(keys))
                        key: dict[str, Any] = {
                            "golden": sample[part],
                            "roundings": [
                                other.get(group, {}).get(path, {}).get(part) for other in others
                            ],
                            "run": mine[part],
                            "rounded": ROUNDED,
                        }
                        if event["kind"] == "grad" and event["place"][:5] == "reads":
                            key["among"] = part  # of weights; one may be zero except for rounding
                        keys.append(key)
                yield _Check(event, here, group, path, numbers)


def _found(search: _Search, check: _Check, rows: list[dict[str, Any]]) -> Bisection:
    event, here = check.event, check.here
    row: dict[str, Any] = next((row for row in rows if row["reason"]), {})
    reason = row.get("reason") or ""
    what = {"reads": "input", "tensors": "output", "writes": "buffer"}[check.group]
    name = check.path
    theirs: Event | None = event
    if event["kind"] == "grad":
        what, name = "gradient", event["name"]
        theirs, here = search.blamed(event)
        made = search.golden.operations[event["of"]]
        subject = f"of the result of {made['name']}" if not name else f"of {name}"
        reason = reason or "there is no gradient"
        reason = f"{subject}: {reason}"
    elif event["kind"] == "module":
        # The runtime computes this module with other operations. Name the original's.
        name = ".".join(filter(None, (event["name"], name)))
        group = search.golden.groups[event["name"], event["call"]]
        alone = [e for e in group if e["number"] not in search.pairs]
        theirs = next((e for e in alone if name in e["writes"]), (alone or [event])[-1])
    elif event["kind"] == "op" and check.group == "reads":
        name = event["names"].get(check.path, "")
        reason = f"{name or 'its input'} differs: {reason}"
    at: list[int] = list(row.get("at") or [])
    sample = event[check.group].get(check.path, {})
    if row and row is not rows[0]:
        reason = f"sums over {sample['stride']} elements each: {reason}"
        at = []
    elif at:
        at = _unravel(at[0] * sample["stride"], sample["shape"])
    known = theirs or here
    assert known is not None
    module = known["name"] if known["kind"] == "module" else known["module"]
    lines = ["", ""]
    if theirs is None and here is not None:
        lines[0] = _other_line(here, search.run, search.golden, search.back)
    if here is None and theirs is not None:
        lines[1] = _other_line(theirs, search.golden, search.run, search.pairs)
    return Bisection(
        0, None, module, what, name, reason, _place(search.golden, theirs, lines[0]),
        _place(search.run, here, lines[1]), row.get("want"), row.get("got"), row.get("allowed"),
        at, 0, list(_differences(search, theirs, here)),
    )  # fmt: skip


def _unravel(index: int, shape: Sequence[int]) -> list[int]:
    found = []
    for extent in reversed(shape):
        found.append(index % extent)
        index //= extent
    return found[::-1]


def _place(trace: _Trace, event: Event | None, line: str) -> TracePlace:
    """The place of an event; `line`: where the operation would be, if this program lacks it."""
    if event is None:
        return TracePlace("", line, "")
    key = (event["module"] if event["kind"] == "op" else event["name"]), event["call"]
    module = trace.modules.get(key)
    made = module["made"] if module is not None else ""
    return TracePlace("" if event["kind"] == "module" else event["name"], event["line"], "", made)


def _other_line(event: Event, own: _Trace, other: _Trace, pairs: dict[int, int]) -> str:
    """The other program's line where an operation would be that only this program has."""
    group = own.groups[event["module"], event["call"]]
    place = next(i for i, e in enumerate(group) if e is event)
    near = sorted(enumerate(group), key=lambda item: (
        item[1]["line"] != event["line"], item[0] < place, abs(item[0] - place)))  # fmt: skip
    for _, neighbour in near:
        if neighbour["number"] in pairs:
            return str(other.operations[pairs[neighbour["number"]]]["line"])
    module = other.modules.get((event["module"], event["call"]))
    return str(module["line"]) if module is not None else ""


def _differences(search: _Search, theirs: Event | None, here: Event | None) -> Iterator[str]:
    """Inputs of the operation, and operations before it, that only one program has."""
    if theirs is not None and here is not None and theirs["kind"] == here["kind"] == "op":
        for path, value in theirs["arguments"].items():
            mine = here["arguments"].get(path, value)
            if mine != value and not (value != value and mine != mine):
                yield f"argument {path}: {value} in the original, {mine} here"
        for path, source in theirs["inputs"].items():
            mine = here["inputs"].get(path)
            if mine == [here["number"], f"reads.{path}"] and source is not None:
                made = search.golden.operations[source[0]]
                if source[1][:5] != "reads":
                    was = f"the result of {made['name']} ({made['line']})"
                    yield f"argument {path}: {was} in the original, no result of this step here"
    yield from _only(search.golden, theirs, search.pairs, "original")
    yield from _only(search.run, here, search.back, "migrated script")


def _only(trace: _Trace, event: Event | None, pairs: dict[int, int], which: str) -> Iterator[str]:
    if event is None:
        return
    key = (event["module"] if event["kind"] == "op" else event["name"]), event["call"]
    group = trace.groups.get(key, [])
    if event["kind"] == "op":
        before = group[: next(i for i, e in enumerate(group) if e is event)]
        alone: list[Event] = []
        for other in reversed(before):
            if other["number"] in pairs:
                break
            alone.insert(0, other)
        if event["number"] not in pairs:
            alone.append(event)
    else:
        alone = [other for other in group if other["number"] not in pairs]
    for other in alone[-_SHOWN:]:
        yield f"only the {which} has {other['name']} ({other['line']})"
