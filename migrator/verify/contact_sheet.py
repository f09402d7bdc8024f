"""Draws frames of the golden above those of the migrated app, for a person to look at.

Runs inside the target's interpreter (needs numpy, safetensors and pillow), so it is self-contained.
Arguments: the golden, the outputs, the PNG to write, then names of outputs of shape (T, H, W, 3) in
uint8. Prints one JSON line: ``error``, None where the picture was written.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_MOST = 8  # frames of a row
_WIDTH = 160  # pixels of a frame, at least
_LABEL, _GAP = 16, 4  # pixels


def main() -> None:
    golden, outputs, picture, *names = sys.argv[1:]
    error = None
    try:
        _draw(Path(golden), Path(outputs), Path(picture), names)
    except Exception as problem:  # no pillow, outputs of another form: whatever is raised is said
        error = f"{type(problem).__name__}: {problem}"
    print("\n" + json.dumps({"error": error}))


def _draw(golden: Path, outputs: Path, picture: Path, names: list[str]) -> None:
    # By name: the migrator, and its type check, do without them.
    load_file = import_module("safetensors.numpy").load_file
    image, image_draw = import_module("PIL.Image"), import_module("PIL.ImageDraw")
    both = {"golden": load_file(golden), "migrated": load_file(outputs)}
    shown = [
        (f"{name}, {whose}", _chosen(found[name]))
        for name in names
        for whose, found in both.items()
    ]
    scale = max(1, _WIDTH // shown[0][1][0].shape[1])
    height, width = (scale * n for n in shown[0][1][0].shape[:2])
    across = max(len(frames) for _, frames in shown)
    size = across * (width + _GAP) + _GAP, len(shown) * (height + _LABEL + _GAP) + _GAP
    sheet = image.new("RGB", size, "white")
    draw = image_draw.Draw(sheet)
    for row, (label, frames) in enumerate(shown):
        top = _GAP + row * (height + _LABEL + _GAP)
        draw.text((_GAP, top), label, fill="black")
        for column, frame in enumerate(frames):
            drawn = image.fromarray(frame).resize((width, height), image.Resampling.NEAREST)
            sheet.paste(drawn, (_GAP + column * (width + _GAP), top + _LABEL))
    sheet.save(picture)


def _chosen(frames: Any) -> Any:
    """Some of the frames, from the first to the last."""
    count = min(_MOST, len(frames))
    return [frames[round(i * (len(frames) - 1) / max(1, count - 1))] for i in range(count)]


if __name__ == "__main__":
    main()
