"""Runs inside a candidate interpreter: prints, as one JSON line, what is installed there.

Self-contained, and readable by Python 3.8, since the candidate may be an old one. Its arguments:
a JSON object of distribution name -> module name, a JSON list of modules whose version is wanted,
and whether they are to be imported for that ("import", seconds) or only read ("read").
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any


def look(distributions: dict[str, str], modules: list[str], by_import: bool) -> dict[str, Any]:
    """Versions by metadata (None: absent) and by import, with the error if an import fails."""
    installed: dict[str, str | None] = {}
    needs: dict[str, list[str]] = {}
    imported: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    for name, module in distributions.items():
        try:
            installed[name] = importlib.metadata.version(name)
            needs[name] = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            # Another distribution may bring the module (opencv-python for -headless).
            installed[name] = "unknown" if importlib.util.find_spec(module) else None
    for module in modules:
        if not by_import:
            imported[module] = written_version(module)
            continue
        try:
            imported[module] = getattr(importlib.import_module(module), "__version__", None)
        except Exception as error:
            errors[module] = f"{type(error).__name__}: {error}"
            imported[module] = written_version(module)
    return {
        "python": list(sys.version_info[:3]),
        "pip": importlib.util.find_spec("pip") is not None,
        "installed": installed,
        "needs": needs,
        "imported": imported,
        "errors": errors,
    }


def written_version(module: str) -> str | None:
    """The version in a module's source: an overwritten module may fail to import."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    for file in (Path(spec.origin), Path(spec.origin).with_name("version.py")):
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, ValueError):  # built in, or compiled
            continue
        found = re.search(r"^__version__(?:: str)? = ['\"]([^'\"]+)", source, re.MULTILINE)
        if found:
            return found.group(1)
    return None


if __name__ == "__main__":
    names, wanted = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    print("\n" + json.dumps(look(names, wanted, sys.argv[3] == "import")))
