"""Imports read from the text are those that a parser finds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from migrator.analysis.project.import_scan import imported_modules


def parsed(source: bytes) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = "." * level + (module or "")
                joint = "" if start.endswith(".") else "."
                found |= {start, *(f"{start}{joint}{alias.name}" for alias in names)}
    return found


@pytest.mark.parametrize(
    "source",
    [
        b"import a, b.c as d, e\n",
        b"from . import a\nfrom .. b import c\nfrom ...d . e import f as g\nfrom .import h\n",
        b"from a import (  # why (not)\n    b,  # one\n    c as d,\n)\nimport e\n",
        b"from a import(b)\nfrom c import*\n",
        b"from a.b \\\n    import c, \\\n    d\nimport e \\\n    as f\n",
        b"if x: import a\ntry: from b import c; import d\nexcept E: pass\n",
        b"def f():\n\timport a\n\tfrom b import c\r\n\r\nimport d\rimport e",
        b'"""Say\nimport no\n"""\nimport a\n\'\'\'\nfrom no import no\n\'\'\'\nimport b\n',
        b'x = "import no; import no"; import a\n# import no\ny = \'it\\\'s\' # "\nimport b\n',
        b'x = "\\\nimport no\\\n"\nimport a\ny = r"\\\\"\nimport b\nz = x[0:1]\n'
        b"import c\n",
        b"raise E(\n) \\\n    from e\nimport a\ndef g():\n    yield \\\n        from b\nimport c\n",
        b"importer = important = 1\nfrom_ = importer\nimport a\n",
        "import größe\nfrom ﬁle import ｘ\n".encode(),
        b"\xef\xbb\xbfimport a\n",
        b"",
    ],
)  # fmt: skip
def test_the_modules_are_those_of_the_tree(source: bytes) -> None:
    assert {*imported_modules(source)} == parsed(source)


def test_of_real_files() -> None:
    files = [*Path(pytest.__file__).parent.parent.glob("_pytest/**/*.py")]
    assert len(files) > 50
    for file in files:
        source = file.read_bytes()
        assert {*imported_modules(source)} == parsed(source), file


def test_a_file_of_python_2_imports_what_it_names() -> None:
    assert imported_modules(b"import a\nprint 'import no'\nfrom b import c\n") == ["a", "b", "b.c"]
    assert imported_modules(b'import a\nx = """never ended\nimport b\n')[0] == "a"


def test_the_time_grows_with_the_length() -> None:
    """Quotes, brackets and imports without an end are not tried again and again."""
    for piece in (b'"', b"'''a", b"import \\\n", b"from a import (", b"from a\n", b";:;"):
        imported_modules(piece * 50_000)
