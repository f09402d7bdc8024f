"""Reports for services: all of them, and GitHub."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import REPOSITORY, cli, committed, git, one_line, wheel_for

from migrator import migrate_paths
from migrator.config import Config
from migrator.report import FORMATS
from tests.report.printed import CODE, STEP, TO, changed, printed

# ---- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [f for f in FORMATS if f not in ("json", "github-review")])
@pytest.mark.parametrize("how", [["--check"], ["--diff"], [], ["-o", "../out"]])
def test_every_format_goes_with_every_mode(tmp_path: Path, form: str, how: list[str]) -> None:
    root = committed(tmp_path / "p", {"a.py": CODE})
    run = cli(".", *TO, *how, "--format", form, cwd=root)
    assert run.returncode == (1 if "--check" in how or "--diff" in how else 0)
    assert not run.stderr and b"CUD003" in run.stdout
    # what was written in place awaits nothing, and stands where it stands now
    assert (b"MOV001" in run.stdout) is (how != [] or form in ("sarif", "markdown"))


@pytest.mark.parametrize("form", [f for f in FORMATS if f not in ("json", "github-review")])
def test_every_format_takes_standard_input(tmp_path: Path, form: str) -> None:
    given = ("-", *TO, "--stdin-filename", "a.py", "--format", form)
    check = cli(*given, "--check", cwd=tmp_path, stdin=CODE.encode())
    assert check.returncode == 1 and b"CUD003" in check.stdout
    run = cli(*given, cwd=tmp_path, stdin=CODE.encode())
    assert b'torch.ones(2).to("jax")' in run.stdout and b"CUD003" in run.stderr


@pytest.mark.parametrize("form", ["github", "gitlab", "sarif=x"])
def test_services_have_to_know_the_file(tmp_path: Path, form: str) -> None:
    run = cli("-", *TO, "--check", "--format", form, cwd=tmp_path, stdin=CODE.encode())
    assert run.returncode == 2 and not run.stdout and not any(tmp_path.iterdir())
    one_line(run.stderr, "--stdin-filename", form.partition("=")[0])


def test_one_run_writes_several_reports(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": CODE})
    run = cli(".", *TO, "--check", "--format", "github", "--format", "sarif=x.sarif", "--format",
              "gitlab=quality.json", cwd=root)  # fmt: skip
    assert run.stdout.startswith(b"::warning ")
    assert json.loads((root / "x.sarif").read_text())["version"] == "2.1.0"
    assert json.loads((root / "quality.json").read_text())[0]["check_name"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["sarif", "github"], ["one --format", "github=FILE"]),
        (["json="], ["NAME=FILE of"]),
        (["pdf"], ["pdf", "sarif"]),
        (["console=x"], ["console=x"]),
        (["sarif=nowhere/x"], ["sarif=nowhere/x"]),
        (["sarif=a.py"], ["a.py", "source"]),
        (["json=q", "gitlab=./q"], ["gitlab=./q", "another"]),
        (["json=NOTES"], ["NOTES", "not a report"]),
        (["json=NOTES/x"], ["NOTES/x"]),
        (["github-review"], ["--diff-base"]),
        (["github-review=q"], ["--diff-base"]),
    ],
)
@pytest.mark.parametrize("how", [["--check"], []])
def test_a_wrong_format_is_one_line(
    tmp_path: Path, options: list[str], words: list[str], how: list[str]
) -> None:
    root = committed(tmp_path, {"a.py": CODE, "NOTES": "mine"})
    given = [word for option in options for word in ("--format", option)]
    run = cli(".", *TO, *how, *given, cwd=root)
    assert run.returncode == 2 and not run.stdout
    one_line(run.stderr, *words)
    assert (root / "a.py").read_text() == CODE
    assert (root / "NOTES").read_text() == "mine" and not (root / "q").exists()


@pytest.mark.parametrize("source", [CODE, "import torch\n"])
def test_a_report_may_take_the_place_of_another(tmp_path: Path, source: str) -> None:
    root = committed(tmp_path / "p", {"a.py": source})
    git(root, "branch", "-M", "main")
    (root / "a.py").write_text(source + "\n")
    for form in FORMATS:
        for other in FORMATS:
            run = cli(".", *TO, "--check", "--diff-base", "main", "--format", f"{form}=../r",
                      "--format", f"{other}=../s", cwd=root)  # fmt: skip
            assert run.returncode != 2, run.stderr
    page = ("--report", "r.html", "--format", "markdown=r.html")
    one_line(cli(".", *TO, *page, cwd=root).stderr, "r.html", "another")


def test_a_report_may_go_to_a_device(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": CODE})
    assert cli(".", *TO, "--check", "--format", f"json={os.devnull}", cwd=root).returncode == 1
    assert not Path(os.devnull).is_file()


def test_in_place_lines_are_those_of_the_written_file(tmp_path: Path) -> None:
    source = 'import torch\n\nif __name__ == "__main__":\n    s = torch.cuda.Stream()\n'
    root = committed(tmp_path, {"a.py": source})
    issues = json.loads(cli(".", *TO, "--format", "gitlab", cwd=root).stdout)
    lines = (root / "a.py").read_text().splitlines()
    assert lines != source.splitlines()
    places = [lines[i["location"]["lines"]["begin"] - 1] for i in issues]
    assert places == ["    s = torch.cuda.Stream()"]


@pytest.mark.parametrize("form", ["gitlab", "sarif"])
def test_paths_of_several_repositories_are_below_one_folder(tmp_path: Path, form: str) -> None:
    committed(tmp_path / "p" / "one", {"src/a.py": CODE})
    committed(tmp_path / "p" / "two", {"b.py": CODE})
    run = cli("one/src", "two", *TO, "--check", "--format", form, cwd=tmp_path / "p")
    text = run.stdout.decode()
    assert '"one/src/a.py"' in text and '"two/b.py"' in text and '".' not in text


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="every name is Unicode there")
@pytest.mark.parametrize("form", FORMATS)
def test_a_name_that_is_not_utf_8(tmp_path: Path, form: str) -> None:
    main = 'if __name__ == "__main__":\n    s = torch.cuda.Stream()\n'
    root = changed(tmp_path, {"c.py": ""}, {os.fsdecode(b"\xff.py"): CODE + main})
    run = cli(".", *TO, "--check", "--diff-base", "main", "--format", form, cwd=root)
    assert run.returncode == 1 and not run.stderr
    text = run.stdout.decode()
    assert not re.search(r"(?<!\\)\\ud[89a-f]", text)
    if form == "github-review":
        assert json.loads(text)["comments"] == []
    else:
        assert "CUD003" in text and "ERR" not in text


# ---- GitHub --------------------------------------------------------------------------------------


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The commands in a log, read as GitHub's runner reads them."""
    found = []
    for line in text.splitlines():
        if match := re.fullmatch(r"::([\w-]+)(?: ([^:]*))?::(.*)", line.lstrip()):
            pairs = (p.split("=", 1) for p in (match[2] or "").split(",") if p)
            values = {name: _unescaped(value, ",:") for name, value in pairs}
            found.append((match[1], values, _unescaped(match[3], "")))
        else:
            assert "##[" not in line
    return found


def _unescaped(text: str, more: str) -> str:
    for character in "\r\n" + more:
        text = text.replace(f"%{ord(character):02X}", character)
    return text.replace("%25", "%")


def test_annotations_say_the_most_important_first(tmp_path: Path) -> None:
    streams = "".join(f"s{n} = torch.cuda.Stream()\n" for n in range(14))
    last = "torch.utils.cpp_extension.load('x', ['x.cu'])\n"
    root = committed(tmp_path, {"a.py": f"import torch\n{streams}{last}", "bad.py": "x.cuda(\n"})
    text = printed(root, "github", code=2)
    found = commands(text)
    assert [kind for kind, _, _ in found].count("warning") == 10
    assert found[0][0] == "error" and found[0][1]["file"] == "bad.py"
    first = next(values for kind, values, _ in found if kind == "warning")
    assert first["line"] == "16"  # a rewrite comes before hours
    assert re.search(
        r"::group::.*5 more\n(  CUD003 .*\n){5}::endgroup::\ntpu-migrate: 2 files", text
    )


def test_an_annotation_names_place_and_result(tmp_path: Path) -> None:
    root = committed(
        tmp_path, {"a,b:c.py": "import torch\n\n\ndef f(x):\n    return 100 % x.cuda()\n"}
    )
    [(kind, values, message)] = commands(printed(root, "github"))
    assert (kind, values["file"], values["line"]) == ("notice", "a,b:c.py", "5")
    assert (values["col"], values["endColumn"]) == ("20", "23")
    assert message.endswith('\n+     return 100 % x.to("jax")')


def test_annotations_stand_at_their_own_lines(tmp_path: Path) -> None:
    source = "import torch\nimport os\n\nx = torch.ones(2).cuda()\ny = x.to('cuda')\nprint(y, os)\n"
    root = committed(tmp_path, {"a.py": source})
    found = {values["line"]: message for _, values, message in commands(printed(root, "github"))}
    assert set(found) == {"2", "4", "5"}  # the set-up is put in behind the imports
    assert "tpu_runtime.setup()" in found["2"]
    assert found["4"].endswith("\n+ x = torch.ones(2).to('jax')")
    assert found["5"].endswith("\n+ y = x.to('jax')")


def test_paths_are_from_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = committed(tmp_path / "checked out", {"sub/a.py": CODE})
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    found = commands(printed(root / "sub", "github"))
    assert {values["file"] for _, values, _ in found} == {"checked out/sub/a.py"}


def test_source_can_not_give_commands(tmp_path: Path) -> None:
    name = "a\n::error::x ##[add-mask]b.py"
    streams = "".join(f"s{n} = torch.cuda.Stream(x='\\n::error::##[group]')\n" for n in range(12))
    root = committed(tmp_path, {name: f"import torch\n{streams}"})
    found = commands(printed(root, "github"))
    assert {kind for kind, _, _ in found} == {"warning", "group", "endgroup"}
    assert {v["file"] for kind, v, _ in found if kind == "warning"} == {name}


def suggestions(root: Path) -> list[dict[str, Any]]:
    run = cli(".", *TO, "--check", "--diff-base", "main", "--format", "github-review", cwd=root)
    document = json.loads(run.stdout)
    assert document["event"] == "COMMENT"
    found: list[dict[str, Any]] = document["comments"]
    return found


def accepted(root: Path, comments: list[dict[str, Any]]) -> str:
    """The file with all suggestions committed, as GitHub does it."""
    lines = (root / "a.py").read_text().split("\n")
    for comment in sorted(comments, key=lambda c: -int(c["line"])):
        match = re.search(r"^(`{3,})suggestion\n(.*?)^\1$", comment["body"], re.S | re.M)
        assert match
        first = comment.get("start_line", comment["line"]) - 1
        lines[first : comment["line"]] = match[2].split("\n")[:-1]
    return "\n".join(lines)


def test_suggestions_are_about_the_change(tmp_path: Path) -> None:
    old = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
    new = "\n\ndef g(x):\n    y = x.cuda()\n    torch.cuda.empty_cache()\n    return y\n"
    root = changed(tmp_path, {"a.py": old}, {"a.py": old + new})
    comments = suggestions(root)
    assert accepted(root, comments) == old + '\n\ndef g(x):\n    y = x.to("jax")\n    return y\n'


def test_what_needs_a_line_outside_of_the_change_is_not_suggested(tmp_path: Path) -> None:
    old = "import torch\n\nx = 1\n"
    root = changed(tmp_path, {"a.py": old}, {"a.py": old + "\ntorch.cuda.synchronize()\n"})
    assert suggestions(root) == []  # it needs an import in the first line


def test_a_new_file_becomes_what_a_run_makes_of_it(tmp_path: Path) -> None:
    source = (REPOSITORY / "reference_apps" / "mshnet" / "main.py").read_text()
    root = changed(tmp_path, {"b.py": ""}, {"a.py": source})
    comments = suggestions(root)
    assert any("Belongs with line" in c["body"] for c in comments)
    cli("a.py", *TO, cwd=root)
    expected = (root / "a.py").read_text()
    git(root, "checkout", "-q", "a.py")
    assert accepted(root, comments) == expected


def test_a_suggestion_keeps_every_character(tmp_path: Path) -> None:
    family = "\U0001f468\u200d\U0001f469"
    said = f"# {family}\xa0\u3000```` \x0c\u202e"
    old = f"import torch\n\x0c\ndef f(x):\n    return x.cuda()  {said}\n"
    root = changed(tmp_path, {"b.py": ""}, {"a.py": old})
    [comment] = suggestions(root)
    assert family in comment["body"] and "\ufffd" not in comment["body"]
    assert accepted(root, [comment]) == old.replace(".cuda()", '.to("jax")')


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_what_is_not_utf_8_is_not_suggested(tmp_path: Path, encoding: str) -> None:
    root = changed(tmp_path, {"b.py": ""}, {"a.py": ""})
    coding = f"# coding: {encoding}\n" if encoding == "latin-1" else ""
    text = f"{coding}import torch\nx = torch.ones(2).cuda()  # Ã©\n"
    (root / "a.py").write_bytes(text.encode(encoding))
    assert suggestions(root) == []


def test_a_review_names_the_runtime_that_it_can_not_bring(tmp_path: Path) -> None:
    source = 'import torch\n\nif __name__ == "__main__":\n    print(torch.ones(2).cuda())\n'
    root = changed(tmp_path, {"b.py": ""}, {"src/a b.py": source})
    review = ("--check", "--diff-base", "main", "--format", "github-review")
    document = json.loads(cli(".", *TO, *review, cwd=root).stdout)
    match = re.search(r"`(tpu-migrate .*)`", document["body"])
    assert match and f"`{Path(wheel_for('torchax')).name}`" in document["body"]
    before = (root / "src/a b.py").read_text()
    expected = migrate_paths([root / "src"], config=Config()).files[0].result.source
    assert before.encode() != expected
    (root / "src/a b.py").write_bytes(expected)  # all is committed
    git(root, "add", "-A")
    assert cli(*shlex.split(match[1])[1:], cwd=root).returncode == 0
    assert (root / wheel_for("torchax")).is_file()
    document = json.loads(cli(".", *TO, *review, cwd=root).stdout)
    assert "tpu_runtime" not in document["body"]


def test_edits_that_may_change_results_are_not_suggested(tmp_path: Path) -> None:
    source = "import torch\n\n\ndef f(x):\n    x = x.cuda()\n    y = 1\n    z = 2\n    y = 3\n"
    root = changed(tmp_path, {"b.py": ""}, {"a.py": source + "    return torch.ones(2).half()\n"})
    run = cli(".", *TO, "--check", "--diff-base", "main", "--unsafe", "--format", "github-review",
              "--format", "json=all.json", cwd=root)  # fmt: skip
    assert '"unsafe"' in (root / "all.json").read_text()
    [comment] = json.loads(run.stdout)["comments"]
    assert comment["line"] == 5 and "half" not in comment["body"]


def test_every_report_says_the_same_of_what_an_edit_risks(tmp_path: Path) -> None:
    """An edit with a price (here: float16 becomes bfloat16) is safe, wherever it is told."""
    source = CODE + "with torch.cuda.amp.autocast():\n    z = x + 1\n"
    root = changed(tmp_path, {"b.py": ""}, {"a.py": source})
    run = cli(".", *TO, "--check", "--diff-base", "main", "--format", "github-review",
              "--format", "markdown=r.md", "--format", "json=r.json", "--report", "r.html",
              cwd=root)  # fmt: skip
    review = json.loads(run.stdout)
    assert any("float16 becomes bfloat16" in c["body"] for c in review["comments"])
    same = "same meaning, within the documented tolerance"
    assert same in review["body"]
    page = (root / "r.md").read_text()
    assert f"All rewrites are safe ({same})." in page and "**may change" not in page
    assert f'"safe":"{same}"' in (root / "r.html").read_text()
    (file,) = json.loads((root / "r.json").read_text())["files"]
    assert {d["why"] for d in file["diagnostics"] if d["code"] == "PRE003"} == {same}


def test_every_report_counts_the_same(tmp_path: Path) -> None:
    """Constructs by what became of them; the set-up is none, and two may be in one line."""
    files = {"a.py": STEP, "b.py": CODE + "y = torch.ones(2).cuda() + x.cuda()\n"}
    root = committed(tmp_path, files)
    run = cli(".", *TO, "--check", "--format", "markdown=r.md", "--format", "json=r.json",
              "--report", "r.html", cwd=root)  # fmt: skip
    summary = json.loads((root / "r.json").read_text())["summary"]
    rewritten, kept, left = (summary[word] for word in ("rewritten", "kept", "reported"))
    said = f": {rewritten} rewritten, {kept} kept (1 by comments), {left} reported ("
    assert rewritten > 5 and said in run.stdout.decode()
    assert f"| **all 2** | {rewritten} |  | {left} |" in (root / "r.md").read_text()
    page = (root / "r.html").read_text()
    cards = re.findall(r"<dt>(Rewritten|Kept|Reported)</dt><dd><b>(\d+)</b>", page)
    assert dict(cards) == {
        "Rewritten": str(rewritten), "Kept": str(kept), "Reported": str(left),
    }  # fmt: skip
