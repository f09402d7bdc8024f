"""Runs random loops in worker processes: originals on CPU torch, migrated ones on torchax."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from random_loops import planting, running
from random_loops.comparing import Run, difference
from random_loops.program import Program, program

WARM = 4  # rounds after which nothing is compiled any more, and every step is held
_MANY = 200  # programs after which new processes take the place of the old ones


@dataclass
class Outcome:
    """What became of one program."""

    seed: int
    verdict: str  # same, differs, raises; or why it does not count
    what: str = ""  # how it differs, or the error
    held: bool = False  # its later steps ran as held programs
    passes: int = 0  # backward passes after the first rounds
    programs: int = 0  # held programs that they ran as
    compiled: int = 0  # programs compiled after the first rounds
    seconds: float = 0.0


@dataclass
class Prepared:
    """A program, what its original did, and its migrated text."""

    program: Program
    original: Run
    migrated: str = ""
    refused: str = ""  # why it was not migrated


def _begin(kind: str, fault: str) -> None:
    running.begin(kind)
    if kind == "held" and fault in planting.OF_RUNTIME:
        planting.in_runtime(fault)


def prepare(made: Program) -> Prepared:
    """Run the original and migrate it: in a process for originals."""
    prepared = Prepared(made, running.run(made.text))
    try:
        prepared.migrated = migrated(made.text)
    except ValueError as error:
        prepared.refused = str(error)
    return prepared


def migrated(text: str) -> str:
    """The program on torchax, with every statement in its place."""
    from migrator.options import Options
    from migrator.pipeline.engine import migrate
    from migrator.targets import targets

    options = Options(ignore=("TRN005",), entry=True)
    result = migrate(text.encode(), targets()["torchax"], options)
    if result.failed or not result.changed:
        raise ValueError("; ".join(d.message for d in result.diagnostics) or "nothing changed")
    return result.source.decode()


def compared(seed: int, prepared: Prepared, expected: Run, ways: tuple[bool, ...]) -> Outcome:
    """Run the migrated program, and compare.

    Each of the ways is a run: whether it is read after each round, or at its end alone.
    """
    outcome = Outcome(seed, "same", held=True)
    for rounds in ways:
        run = running.run(prepared.migrated, rounds=rounds)
        outcome.seconds += run.seconds
        outcome.held &= _is_held(run, prepared.original, rounds)
        outcome.compiled = max(outcome.compiled, sum(run.compiled[WARM:]))
        outcome.passes += sum(prepared.original.passes[WARM:])
        outcome.programs += sum(run.held[WARM:])
        if run.error != "" and not _same_error(run.error, expected.error):
            outcome.verdict, outcome.what = "raises", run.error
            break
        outcome.what = difference(run, expected)
        if not outcome.what and expected.error and not run.error:
            outcome.what = f"no {expected.error}"
        if outcome.what:
            outcome.verdict = "differs"
            outcome.what += "" if rounds else " (read at the end alone)"
            break
    return outcome


def _same_error(found: str, expected: str) -> bool:
    return bool(expected) and found.partition(":")[0] == expected.partition(":")[0]


def _is_held(run: Run, original: Run, rounds: bool) -> bool:
    """Whether each later round with a backward pass ran a held program."""
    later = [n for n, passes in enumerate(original.passes) if n >= WARM and passes]
    if rounds:
        return bool(later) and all(run.held[n] for n in later if n < len(run.held))
    return bool(later) and sum(run.held[WARM:]) > 0


def again(made: Program) -> Run:
    """Run the original once more, or a text in its place."""
    return running.run(made.text)


def run_migrated(text: str) -> Run:
    return running.run(text)


@dataclass
class Harness:
    """The worker processes. Programs that only differ from themselves need no torchax."""

    jobs: int = 1
    fault: str = ""
    identity: bool = False
    alternates: bool = False  # a program is read after each round, the next one at its end alone
    _pools: dict[str, ProcessPoolExecutor] = field(default_factory=dict)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()

    def _submit(self, kind: str, function: Any, *args: Any) -> Future[Any]:
        if kind not in self._pools:
            self._pools[kind] = ProcessPoolExecutor(
                self.jobs if kind == "held" else 1, multiprocessing.get_context("spawn"),
                _begin, (kind, self.fault),
            )  # fmt: skip
        return self._pools[kind].submit(function, *args)

    def outcomes(self, seeds: Sequence[int]) -> Iterator[Outcome]:
        """What becomes of the programs of the seeds, as they get ready."""
        for first in range(0, len(seeds), _MANY):
            yield from self._some(seeds[first : first + _MANY])
            self._end()

    def _some(self, seeds: Sequence[int]) -> Iterator[Outcome]:
        preparing = {self._submit("original", prepare, program(s)): s for s in seeds}
        comparing: list[Future[Outcome]] = []
        for future in as_completed(preparing):
            found = self._compare(preparing[future], future.result())
            if isinstance(found, Outcome):
                yield found
            else:
                comparing.append(found)
            for done in [each for each in comparing if each.done()]:
                comparing.remove(done)
                yield done.result()
        yield from (future.result() for future in as_completed(comparing))

    def outcome(self, seed: int, made: Program) -> Outcome:
        """What becomes of one program, whatever its seed's is."""
        found = self._compare(seed, self._submit("original", prepare, made).result())
        return found if isinstance(found, Outcome) else found.result()

    def _compare(self, seed: int, prepared: Prepared) -> Outcome | Future[Outcome]:
        made, expected = prepared.program, prepared.original
        if expected.error:
            return Outcome(seed, "the original raises", expected.error)
        if self.identity:
            text = made.text
            if self.fault in planting.OF_TEXT:
                text = planting.in_text(text, self.fault, seed)
            run = self._submit("original", again, Program(text, made.draws)).result()
            what = run.error or difference(run, expected)
            return Outcome(seed, "differs" if what else "same", what, held=True)
        if prepared.refused:
            return Outcome(seed, "not migrated", prepared.refused)
        if made.draws:
            expected = self._submit("eager", run_migrated, prepared.migrated).result()
        if self.fault in planting.OF_TEXT:
            prepared.migrated = planting.in_text(prepared.migrated, self.fault, seed)
        ways = (seed % 2 == 0,) if self.alternates else (True, False)
        return self._submit("held", compared, seed, prepared, expected, ways)
