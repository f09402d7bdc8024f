"""Say in a few lines what `tpu-migrate verify … --json` found: `python verdict.py RESULT.json`.

Reads standard input without a file. Exit code 0: it passed; 1: it didn't.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def lines(result: dict[str, Any]) -> list[str]:
    """What a person would say of a result."""
    name = result.get("script") or result.get("app")
    if result.get("error"):
        return [f"{name}: nothing was verified: {result['error']}"]
    verdict = "passed" if result["passed"] else "DIFFERS"
    said = [f"{name} on {result['target']} ({result['device']}): {verdict}"]
    if found := result.get("first"):
        place = f".{found['place']}" if found.get("place") else ""
        said.append(f"first: {found['kind']} {found['name']}{place}, step {found['step'] + 1}")
        said += [f"  line: {found['line']}"] if found.get("line") else []
        said.append(f"  {found['reason']}: original {found['want']}, here {found['got']}")
    for part in ("stepwise", "compiled"):
        for what in ("missing", "surplus"):
            if names := (result.get(part) or {}).get(what):
                said.append(f"{what} ({part}): {', '.join(map(str, names[:5]))}")
    said += [f"problem: {problem}" for problem in result.get("problems", [])]
    if result.get("quick") and result["passed"]:
        said.append("only the first steps were compared: verify without --quick, too")
    if "CPU" in str(result["device"]):
        said.append("it ran on the CPU, not on a TPU")
    return said


def main() -> int:
    text = Path(sys.argv[1]).read_text("utf-8") if len(sys.argv) > 1 else sys.stdin.read()
    found = json.loads(text)
    results = found if isinstance(found, list) else [found]
    for result in results:
        print("\n".join(lines(result)))
    return 0 if all(result.get("passed") for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
