"""Reports for GitLab and in SARIF."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from helpers import REPOSITORY, cli, committed

from migrator import migrate_paths
from migrator.config import Config
from tests.report.printed import CODE, SCHEMA, TO, notebook, printed


def test_issues_for_gitlab(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": CODE, "b c.py": CODE, "n.ipynb": notebook(CODE)})
    issues = json.loads(printed(root, "gitlab"))
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        path, lines = issue["location"]["path"], issue["location"]["lines"]
        assert (root / path).is_file()
        shown = (root / path).read_text().splitlines()[lines["begin"] - 1]
        assert issue["check_name"] != "CUD003" or "Stream" in shown  # in the notebook's JSON, too
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) > 6
    assert {i["severity"] for i in issues if i["check_name"] == "CUD003"} == {"major"}


def test_fingerprints_stay_where_lines_move(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": CODE})
    before = {i["fingerprint"] for i in json.loads(printed(root, "gitlab"))}
    (root / "a.py").write_text(CODE.replace("\n\n", "\n\nimport os\n\n# more\n", 1))
    assert {i["fingerprint"] for i in json.loads(printed(root, "gitlab"))} == before


# ---- SARIF ---------------------------------------------------------------------------------------


URIS = jsonschema.FormatChecker(())
_URI = r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-F]{2})*"


@URIS.checks("uri")
def is_uri(text: object) -> bool:
    return re.fullmatch(rf"[a-z][a-z0-9+.-]*:{_URI}", str(text), re.A) is not None


@URIS.checks("uri-reference")
def is_reference(text: object) -> bool:
    return re.fullmatch(_URI, str(text), re.A) is not None


def sarif(root: Path, *options: str, code: int = 1) -> dict[str, Any]:
    document = json.loads(printed(root, "sarif", *options, code=code))
    jsonschema.Draft4Validator(SCHEMA, format_checker=URIS).validate(document)
    [found] = document["runs"]
    assert isinstance(found, dict)
    return found


def test_sarif_of_everything(tmp_path: Path) -> None:
    root = committed(tmp_path, {"dir ä/a#.py": CODE, "bad.py": "x.cuda(\n"})
    found = sarif(root, code=2)
    rules = found["tool"]["driver"]["rules"]
    for result in found["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]
        assert location["artifactLocation"]["uriBaseId"] in found["originalUriBaseIds"]
        assert (root / unquote(location["artifactLocation"]["uri"])).is_file()
    by_code = {result["ruleId"]: result for result in found["results"]}
    assert by_code["CUD003"]["level"] == "warning" and by_code["ERR001"]["level"] == "error"
    uri = by_code["CUD003"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "dir%20%C3%A4/a%23.py"
    [invocation] = found["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (2, False)
    assert "bad.py" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    stream = next(r for r in rules if r["id"] == "CUD003")
    assert "```diff" in stream["help"]["markdown"] or "#" in stream["help"]["markdown"]
    assert "```" not in stream["help"]["text"] and len(stream["help"]["text"]) > 100


def test_every_rule_has_a_valid_descriptor() -> None:
    from migrator.registry import registry
    from migrator.report.sarif import _rule

    schema = {**SCHEMA, "$ref": "#/definitions/reportingDescriptor"}
    for known in registry().rules:
        described = _rule(known)
        jsonschema.Draft4Validator(schema, format_checker=URIS).validate(described)
        assert "://" in described.get("helpUri", "https://")


def test_suppressed_findings_are_marked_so(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": CODE})
    results = sarif(root)["results"]
    [marked] = [r for r in results if "suppressions" in r]
    assert marked["suppressions"] == [{"kind": "inSource", "status": "accepted"}]
    assert marked["locations"][0]["physicalLocation"]["region"]["startLine"] == 6


def test_columns_are_characters(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": 'x = "𝔘ñ", y.cuda()\n'})
    found = sarif(root)
    region = found["results"][-1]["locations"][0]["physicalLocation"]["region"]
    assert found["columnKind"] == "unicodeCodePoints"
    assert (region["startColumn"], region["endColumn"]) == (13, 17)


def test_braces_and_brackets_are_no_placeholders_and_no_links(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = {0: y}[0](1).cuda()\nz = f'{0}'.cuda\n"})
    texts = [result["message"]["text"] for result in sarif(root)["results"]]
    assert any("y}}[0] (1).cuda" in text for text in texts), texts
    for text in texts:
        assert "](" not in text and not re.search(r"(?<!\{)\{\d", text)


def with_fix(content: str, fix: dict[str, Any]) -> str:
    """A file after one fix: regions are replaced as the standard says."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    [change] = fix["artifactChanges"]
    for replacement in reversed(change["replacements"]):
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        assert start <= end <= len(content)
        new = replacement.get("insertedContent", {}).get("text", "")
        content = content[:start] + new + content[end:]
    return content


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef f(x):\n    return x.cuda()\n",
        "import torch\r\ndef f(x):\r\n    return x.cuda()\r\n",
        "import torch\ndef f(x):\n    return x.cuda()",
        "import torch\nx.cuda()",
        "import torch\nx = torch.ones(2)\ntorch.cuda.empty_cache()",
        "import torch\ntorch.cuda.empty_cache()\nx = torch.ones(2)\n",
        "import torch\n\nif __name__ == '__main__':\n    torch.cuda.synchronize()\n",
    ],
)
def test_a_fix_makes_what_the_tool_makes(tmp_path: Path, source: str) -> None:
    root = committed(tmp_path, {"a.py": source.encode()})
    fixes = [r["fixes"][0] for r in sarif(root)["results"] if "fixes" in r]
    cli("a.py", *TO, cwd=root)
    expected = (root / "a.py").read_bytes().decode()
    assert with_fix(source, fixes[-1]) == expected


def test_fixes_bring_the_imports_that_they_need(tmp_path: Path) -> None:
    """Each of them applied alone: it parses, and knows its names."""
    for target in ("torchax", "torch_xla"):
        report = migrate_paths([REPOSITORY / "reference_apps"], target, config=Config(unsafe=True))
        from migrator.report import View
        from migrator.report.sarif import render

        document = json.loads(render(report, View()))
        count = 0
        for result in document["runs"][0]["results"]:
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            for fix in result.get("fixes", ()) if uri.endswith(".py") else ():
                text = with_fix((REPOSITORY / uri).read_text(), fix)
                compile(text, uri, "exec")
                for module in ("tpu_runtime", "torch_xla"):
                    if re.search(rf"^[^#\"]*\b{module}\.", text, re.M):
                        assert re.search(rf"^\s*import {module}\b", text, re.M), (uri, result)
                count += 1
        assert count > 30
