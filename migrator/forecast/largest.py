"""The largest value of an option of the script, mostly its batch size, whose steps fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.errors import UsageError

from .forecast import Forecast

MOST = 20  # forecasts
_CLOSE = 16  # a sixteenth of the value is close enough


@dataclass(frozen=True)
class Trial:
    """A forecast with one value of the option. Bytes and seconds of the step that needs most."""

    value: int
    fits: bool
    hbm: int
    capacity: int
    bound: float | None  # seconds; None where it is refused


Make = Callable[[list[str]], Forecast]


def find_largest(option: str, arguments: Sequence[str], make: Make) -> tuple[Forecast, list[Trial]]:
    """The forecast of the largest value that fits (else of the given one), and all trials.

    The value is doubled or halved until one fits and another does not, then bisected.
    Raises UsageError: the option is not among the script's.
    """
    given, put = _find(option, arguments)
    found: dict[int, Forecast] = {}
    trials: list[Trial] = []

    def fits(value: int) -> bool:
        found[value] = make(put(value))
        if found[value].error is not None:
            raise UsageError(f"with {option} {value}: {found[value].error}")
        trials.append(_trial(value, found[value]))
        return trials[-1].fits

    low, high = (given, 0) if fits(given) else (0, given)
    while not (low and high) and len(trials) < MOST and high != 1:
        value = 2 * low if low else high // 2
        low, high = (value, high) if fits(value) else (low, value)
    while low and high - low > max(1, low // _CLOSE) and len(trials) < MOST:
        value = (low + high) // 2
        value -= value % 8 if value - value % 8 > low else 0
        low, high = (value, high) if fits(value) else (low, value)
    return found[low or given], sorted(trials, key=lambda trial: trial.value)


def _trial(value: int, found: Forecast) -> Trial:
    if not found.steps:
        raise UsageError("--largest: no step was compiled: " + "; ".join(found.problems))
    most = max(found.steps, key=lambda step: step.hbm)
    bound = None if most.error else most.bounds.seconds
    return Trial(value, all(s.fits for s in found.steps), most.hbm, most.capacity, bound)


def _find(option: str, arguments: Sequence[str]) -> tuple[int, Callable[[int], list[str]]]:
    """The option's value, and the arguments with another one."""
    wanted = option.lstrip("-").replace("-", "_")
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.lstrip("-").replace("-", "_") != wanted:
            continue
        text = value if equals else arguments[at + 1] if at + 1 < len(arguments) else ""
        if not text.isdecimal() or not int(text):
            break
        place, start = (at, f"{name}=") if equals else (at + 1, "")

        def put(new: int, place: int = place, start: str = start) -> list[str]:
            return [*arguments[:place], f"{start}{new}", *arguments[place + 1 :]]

        return int(text), put
    raise UsageError(
        f"--largest {option}: the script gets no such number: add `-- {option} 8`, the value to "
        "start from"
    )
