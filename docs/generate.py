"""Write docs/rules from the rules: `python docs/generate.py`. A test fails when they are stale."""

from __future__ import annotations

from pathlib import Path

from migrator.report.explain import pages

FOLDER = Path(__file__).parent / "rules"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
