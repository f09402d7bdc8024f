"""Draws the losses of a golden and of a run, and below them how far they are apart.

Runs inside the target's interpreter (needs pillow), so it is self-contained. Arguments: a JSON file
with `title` and `losses`, pairs of numbers, and the PNG to write. Prints one JSON line: ``error``,
None where the picture was written.
"""

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_SIZE = (1000, 560)
_LEFT, _RIGHT, _TOP, _GAP, _BOTTOM = 84, 16, 68, 46, 30
_SHARE = 0.62  # of the upper panel
_GOLDEN, _HERE, _APART, _GRID, _INK = "#9ecae1", "#d95f02", "#444444", "#dddddd", "#222222"
_TICKS = 4


def main() -> None:
    spec, picture = sys.argv[1:]
    error = None
    try:
        found = json.loads(Path(spec).read_text("utf-8"))
        losses = [(float(a), float(b)) for a, b in found["losses"]]
        _draw(found["title"], losses, Path(picture))
    except Exception as problem:  # no pillow, above all: whatever is raised is said
        error = f"{type(problem).__name__}: {problem}"
    print("\n" + json.dumps({"error": error}))


def _draw(title: str, losses: list[tuple[float, float]], picture: Path) -> None:
    # By name: the migrator, and its type check, do without it.
    image, image_draw = import_module("PIL.Image"), import_module("PIL.ImageDraw")
    sheet = image.new("RGB", _SIZE, "white")
    draw = image_draw.Draw(sheet)
    want, got = [a for a, _ in losses], [b for _, b in losses]
    apart = [abs(b - a) for a, b in losses]
    height = _SIZE[1] - _TOP - _GAP - _BOTTOM
    middle = _TOP + int(_SHARE * height)
    draw.text((_LEFT, 10), title, fill=_INK)
    x = _LEFT
    for text, color in (("original", _GOLDEN), ("here", _HERE)):
        draw.line((x, 36, x + 24, 36), fill=color, width=4)
        draw.text((x + 30, 30), text, fill=_INK)
        x += 50 + int(draw.textlength(text))
    upper = (_TOP, middle)
    low, high = _range([*want, *got])
    _frame(draw, upper, low, high, "loss", len(losses))
    _line(draw, upper, low, high, want, _GOLDEN, width=6)
    _line(draw, upper, low, high, got, _HERE)
    lower = (middle + _GAP, _SIZE[1] - _BOTTOM)
    top = max((a for a in apart if math.isfinite(a)), default=0.0)
    _frame(draw, lower, 0.0, top or 1.0, f"apart (at most {top:.3g})", len(losses))
    _line(draw, lower, 0.0, top or 1.0, apart, _APART)
    draw.text((_SIZE[0] // 2 - 20, _SIZE[1] - 14), "backward passes", fill=_INK)
    sheet.save(picture)


def _range(values: list[float]) -> tuple[float, float]:
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _frame(draw: Any, panel: tuple[int, int], low: float, high: float, name: str, n: int) -> None:
    top, bottom = panel
    for tick in range(_TICKS + 1):
        y = bottom - (bottom - top) * tick / _TICKS
        draw.line((_LEFT, y, _SIZE[0] - _RIGHT, y), fill=_GRID)
        text = f"{low + (high - low) * tick / _TICKS:.4g}"
        draw.text((_LEFT - 8 - draw.textlength(text), y - 6), text, fill=_INK)
    draw.text((_LEFT, top - 15), name, fill=_INK)
    for part in range(_TICKS + 1):
        number = round((n - 1) * part / _TICKS)
        text = str(number + 1)
        draw.text((_x(number, n) - draw.textlength(text) / 2, bottom + 4), text, fill=_INK)


def _x(number: int, count: int) -> float:
    return _LEFT + (_SIZE[0] - _RIGHT - _LEFT) * number / max(1, count - 1)


def _line(draw: Any, panel: tuple[int, int], low: float, high: float, values: list[float],
          color: str, width: int = 2) -> None:  # fmt: skip
    top, bottom = panel
    points = []
    for i, value in enumerate(values):
        if math.isfinite(value):
            points.append(
                (_x(i, len(values)), bottom - (bottom - top) * (value - low) / (high - low))
            )
        else:
            draw.text((_x(i, len(values)) - 3, top), "x", fill="red")
    draw.line(points, fill=color, width=width, joint="curve")


if __name__ == "__main__":
    main()
