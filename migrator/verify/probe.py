"""Runs inside a candidate interpreter: prints, as one JSON line, what is installed there.

Self-contained, and readable by Python 3.8, since the candidate may be an old one. Its arguments:
a JSON object of distribution name -> module name, and a JSON list of modules to import.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any


def look(distributions: dict[str, str], modules: list[str]) -> dict[str, Any]:
    """Versions by metadata (None: absent) and by import, with the error where an import fails."""
    installed: dict[str, str | None] = {}
    imported: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    for name, module in distributions.items():
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # Another distribution may bring the module (opencv-python for -headless).
            installed[name] = "unknown" if importlib.util.find_spec(module) else None
    for module in modules:
        try:
            imported[module] = getattr(importlib.import_module(module), "__version__", None)
        except Exception as error:
            errors[module] = f"{type(error).__name__}: {error}"
            imported[module] = written_version(module)
    return {
        "python": list(sys.version_info[:3]),
        "pip": importlib.util.find_spec("pip") is not None,
        "installed": installed,
        "imported": imported,
        "errors": errors,
    }


def written_version(module: str) -> str | None:
    """The version in a module's source: one that was overwritten may no longer import."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    try:
        source = Path(spec.origin).read_text(encoding="utf-8")
    except (OSError, ValueError):  # built in, or compiled
        return None
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", source, re.MULTILINE)
    return found.group(1) if found else None


if __name__ == "__main__":
    print("\n" + json.dumps(look(json.loads(sys.argv[1]), json.loads(sys.argv[2]))))
