"""Whether `tpu-migrate verify` tells right answers from wrong ones: twenty reported constructs.

    python benchmarks/answers --target torchax [--python PYTHON] [--constructs NAME...]
                              [--results FILE]

Each file in `constructs/` is a small program (`train.py`) whose `part.py` has a construct that is
reported, as public repositories have it; the right answer, and three wrong ones that look right.
`part.py` is `before` as it is reported; `reference` is what the original is recorded with where
`before` needs a GPU to run (otherwise `before` itself is). An answer is migrated and verified with
`--layers` against that golden, as docs/agents.md says. Printed: how many right answers are
accepted, how many wrong ones rejected, and for how many of these the first layer or value that
`verify` reports is the one that the wrong line makes (`named`, written down beside each of them).
`--results` keeps each verdict in a file, from which a run that was cut short goes on. Exit code 1
below 20 of 20, 60 of 60, and 50 named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from migrator import find_remaining, migrate_paths
from migrator.config import Config
from migrator.targets import Target, find_target
from migrator.verify.comparisons import Finding
from migrator.verify.originals import record_script
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

CONSTRUCTS = Path(__file__).resolve().parent / "constructs"
SETTINGS = RecordSettings(roundings=2, layers=True, timeout=180.0)
LEAST = 50 / 60  # of the wrong answers whose place is named


@dataclass(frozen=True)
class Wrong:
    """An answer with one line that is wrong, and what `verify` is to report first because of it."""

    what: str
    part: str
    named: Sequence[str]


@dataclass(frozen=True)
class Question:
    """A reported construct, its right answer, and wrong ones."""

    name: str
    kind: str
    seen: str  # in which public repository
    program: str
    before: str
    reference: str
    right: str
    wrong: Sequence[Wrong]


def question(name: str) -> Question:
    table = tomllib.loads((CONSTRUCTS / f"{name}.toml").read_text("utf-8"))
    right = table["right"]
    wrong = []
    for each in table["wrong"]:
        if right.count(each["old"]) != 1:
            raise ValueError(f"{name}: {each['what']}: not there once: {each['old']!r}")
        part = right.replace(each["old"], each["new"])
        compile(part, name, "exec")  # one that can't run is no answer
        wrong.append(Wrong(each["what"], part, each["named"]))
    return Question(
        name, table["kind"], table["seen"], table["program"], table["before"],
        table.get("reference", table["before"]), right, wrong,
    )  # fmt: skip


def names() -> list[str]:
    return sorted(path.stem for path in CONSTRUCTS.glob("*.toml"))


def left(asked: Question, part: str, target: Target, folder: Path) -> list[str]:
    """The codes that `remaining` lists for the program with this `part.py`."""
    _write(folder, asked, part)
    found = find_remaining([folder], target.name, config=Config())
    return [each.code for each in found.remaining]


@dataclass
class Judge:
    """Verifies answers on one target; goldens are recorded once."""

    target: Target
    python: Path
    work: Path
    goldens: dict[str, Path] = field(default_factory=dict)

    def verify(self, asked: Question, part: str) -> ScriptResult:
        golden, folder = self._golden(asked), self.work / "answer"
        _write(folder, asked, part)

        def migrate(source: Path, target: str, to: Path) -> list[str]:
            return migrate_paths(
                [source], target=target, config=Config(runtime="copy"), output=to
            ).errors

        options = RunOptions(python=self.python, migrate=migrate)
        with contextlib.chdir(folder):
            return verify_against(Path("train.py"), [], self.target, golden, SETTINGS, options)

    def _golden(self, asked: Question) -> Path:
        if asked.name not in self.goldens:
            folder, golden = self.work / "original", self.work / f"golden-{asked.name}"
            _write(folder, asked, asked.reference)
            with contextlib.chdir(folder):
                record_script(Path("train.py"), [], golden, self.python, SETTINGS)
            self.goldens[asked.name] = golden
        return self.goldens[asked.name]


def _write(folder: Path, asked: Question, part: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(asked.program, "utf-8")
    (folder / "part.py").write_text(part, "utf-8")


def said(result: ScriptResult) -> list[str]:
    """What `verify` reports first: the layer that `--layers` names, or else the first value."""
    layers = result.layers.to_dict()["first"] if result.layers is not None else None
    if layers is not None and _is_first(result.layers.first, result.first):
        return [f"{layers['kind']} {layers['path']}", *(f"from {name}" for name in layers["from"])]
    if result.first is not None:
        return [f"{result.first.kind} {result.first.name}".strip()]
    runs = result.stepwise, result.compiled
    return [*result.problems, *(place for run in runs for place in (*run.missing, *run.surplus))]


def _is_first(layer: Finding | None, value: Finding | None) -> bool:
    return layer is not None and (value is None or layer.order <= value.order)


@dataclass(frozen=True)
class Outcome:
    """Of one answer; `what`: "" for the right one. `part`: a digest of the files."""

    question: str
    what: str
    part: str
    passed: bool
    said: Sequence[str]
    ratio: float


class Outcomes:
    """The outcomes so far: also those of a run before, where they are kept in a file."""

    def __init__(self, judge: Judge, file: Path | None) -> None:
        self.judge, self.file = judge, file
        lines = file.read_text("utf-8").splitlines() if file and file.exists() else []
        known = [Outcome(**json.loads(line)) for line in lines]
        self.known = {(o.question, o.what, o.part): o for o in known}

    def of(self, asked: Question, what: str, part: str) -> Outcome:
        text = f"{asked.program}{asked.reference}{part}"
        key = asked.name, what, sha256(text.encode()).hexdigest()[:16]
        if key not in self.known:
            result = self.judge.verify(asked, part)
            if result.error is not None:  # nothing was verified: that is no wrong answer rejected
                raise SystemExit(f"{asked.name}, {what or 'right'}: {result.error}\n"
                                 f"{result.log_tail}")  # fmt: skip
            findings = (*result.stepwise.findings, *result.compiled.findings)
            ratio = max((f.ratio for f in findings), default=0.0)
            self.known[key] = found = Outcome(*key, result.passed, said(result), ratio)
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(found)) + "\n")
        return self.known[key]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--constructs", nargs="*", choices=names(), default=names())
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    accepted = rejected = named = wrongs = 0
    with tempfile.TemporaryDirectory() as work:
        judge = Judge(find_target(given.target), given.python.absolute(), Path(work))
        outcomes = Outcomes(judge, given.results)
        for name in given.constructs:
            asked = question(name)
            found = outcomes.of(asked, "", asked.right)
            accepted += found.passed
            verdict = "accepted" if found.passed else f"REJECTED: {'; '.join(found.said)}"
            print(f"{name} ({asked.kind}): {verdict}, {found.ratio:.2g} of allowed", flush=True)
            for wrong in asked.wrong:
                found = outcomes.of(asked, wrong.what, wrong.part)
                is_named = not found.passed and bool({*found.said} & {*wrong.named})
                wrongs, rejected = wrongs + 1, rejected + (not found.passed)
                named += is_named
                verdict = "ACCEPTED" if found.passed else "rejected"
                place = "" if is_named or found.passed else f", named otherwise ({wrong.named})"
                print(f"  {wrong.what}: {verdict}: {'; '.join(found.said)}{place}", flush=True)
    rights = len(given.constructs)
    print(f"{given.target}: accepted {accepted} of {rights} right answers, rejected {rejected} of "
          f"{wrongs} wrong ones, named the place in {named}")  # fmt: skip
    return int(accepted < rights or rejected < wrongs or named < LEAST * wrongs)


if __name__ == "__main__":
    sys.exit(main())
