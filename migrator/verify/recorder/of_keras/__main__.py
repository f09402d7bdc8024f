"""Runs a Keras script as `python SCRIPT ARGUMENTS…` would, and records what it computes.

    python FOLDER SPEC.json SCRIPT ARGUMENTS…

As the recorder above does for PyTorch, with the same SPEC.json and the same files. Runs inside the
script's interpreter, with any back end of Keras 3, and imports nothing of tpu-migrate.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(_HERE), str(_HERE.parent)]
from keras_session import KerasSession  # noqa: E402


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script = Path(sys.argv[2]).resolve()
    session = KerasSession(spec)
    sys.argv = [str(script), *sys.argv[3:]]
    session.install([str(_HERE), str(_HERE.parent)])
    sys.path.insert(0, str(Path.cwd() if spec["module"] else script.parent))
    if spec["module"]:
        return session.record(
            lambda: runpy.run_module(spec["module"], run_name="__main__", alter_sys=True)
        )
    return session.record(lambda: runpy.run_path(str(script), run_name="__main__"))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
