"""The GitHub action and the examples for CI: valid files, and scripts that do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helpers import REPOSITORY, committed, git, write_tree

SCHEMAS = REPOSITORY / "tests" / "schemas"
GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
# What `gh` answers, by the end of the address; everything that it is asked is written down.
GH = """
import json, os, pathlib, sys
log, answers = pathlib.Path(os.environ["GH_LOG"]), json.loads(os.environ["GH_ANSWERS"])
given = sys.argv[1:]
body = next((a[6:] for a in given if a.startswith("body=@")), None)
sent = given[given.index("--input") + 1] if "--input" in given else body
text = pathlib.Path(sent).read_text("utf-8") if sent else ""
with log.open("a") as file:
    print(json.dumps([given, text]), file=file)
if "--paginate" in given:
    print(answers)
"""


def loaded(name: str) -> Any:
    return yaml.safe_load((REPOSITORY / name).read_text("utf-8"))


def validate(document: Any, schema: str) -> None:
    found = json.loads((SCHEMAS / schema).read_text("utf-8"))
    jsonschema.validators.validator_for(found)(found).validate(document)


def test_the_action_is_valid() -> None:
    action = loaded("action.yml")
    validate(action, "github-action.json")
    steps = action["runs"]["steps"]
    ids = {step["id"] for step in steps if "id" in step}
    text = (REPOSITORY / "action.yml").read_text("utf-8")
    assert set(re.findall(r"steps\.(\w+)\.", text)) <= ids
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    for step in steps:
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # text of a pull request is never part of a script
            assert subprocess.run(["bash", "-n"], input=step["run"].encode()).returncode == 0


def test_the_examples_are_valid() -> None:
    workflow = loaded("docs/ci/github.yml")
    validate({str(k) if k is not True else "on": v for k, v in workflow.items()},
             "github-workflow.json")  # fmt: skip
    inputs = loaded("action.yml")["inputs"]
    [job] = workflow["jobs"].values()
    used = next(s for s in job["steps"] if "tpu-migrate" in s["uses"])
    assert set(used["with"]) <= set(inputs)
    assert "pull_request_target" not in workflow[True] and "secrets" not in workflow
    validate(loaded("docs/ci/gitlab.yml"), "gitlab-ci.json")


def program(file: Path, *arguments: Path) -> None:
    """A command that runs this interpreter."""
    words = shlex.join(map(str, (sys.executable, *arguments)))
    file.unlink(missing_ok=True)
    write_tree(file.parent, {file.name: f'#!/bin/sh\nexec {words} "$@"\n'})
    file.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runner's folders and environment; tpu-migrate is there as the install step leaves it."""
    write_tree(tmp_path, {"gh.py": GH})
    program(tmp_path / "temp" / "tpu-migrate" / "bin" / "python")
    program(tmp_path / "path" / "gh", tmp_path / "gh.py")
    for name in [n for n in os.environ if n.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    environment = {
        "RUNNER_TEMP": tmp_path / "temp", "GITHUB_OUTPUT": tmp_path / "output",
        "GITHUB_STEP_SUMMARY": tmp_path / "summary", "GITHUB_REPOSITORY": "o/r",
        "GITHUB_WORKSPACE": tmp_path / "work", "GITHUB_BASE_REF": "",
        "GH_LOG": tmp_path / "gh.log", "GH_ANSWERS": '""', "TPU_MIGRATE_CACHE": tmp_path / "cache",
        "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}",
        "PYTHONPATH": ".",  # as many jobs have it
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def step(name: str, cwd: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as GitHub's runner does."""
    [found] = [s for s in loaded("action.yml")["runs"]["steps"] if s.get("name") == name]
    assert set(values) <= set(found["env"]), "a value that the step does not get"
    environment = {**os.environ, **dict.fromkeys(found["env"], ""), **values}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", found["run"]]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def outputs(machine: Path) -> dict[str, str]:
    lines = (machine / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def asked(machine: Path) -> list[tuple[list[str], str]]:
    log = machine / "gh.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


LOOK = "Look at the code"
VALUES = {"PATHS": ".\n", "TARGET": "torchax"}


def pull_request(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which the branch adds GPU code to a file that has some."""
    root = committed(machine / "work", {"a.py": GPU, "b c.py": "x = 1\n"})
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    write_tree(root, {"a.py": GPU + "\n\ndef g(y):\n    return y.cuda()\n"})
    git(root, "commit", "-qam", "more")
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    return root


def test_a_push_looks_at_everything(machine: Path) -> None:
    root = committed(machine / "work", {"a.py": GPU, "b c.py": GPU, "d.py": GPU})
    run = step(LOOK, root, PATHS="a.py\nb c.py\n", TARGET="torchax", ARGS="--ignore PRE\n --jobs 1")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("::notice file=") == 2
    found = outputs(machine)
    assert (found["exit-code"], found["may-write"]) == ("1", "true")
    assert json.loads(Path(found["sarif"]).read_text())["runs"][0]["results"]
    assert "`b c.py`" in (machine / "summary").read_text()
    assert "review" not in found
    assert (root / "a.py").read_text() == GPU


def test_a_pull_request_is_told_what_it_adds(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pull_request(machine, monkeypatch)
    run = step(LOOK, root, **VALUES, HEAD_REPOSITORY="o/r")
    assert re.findall(r"file=a.py,line=(\d+)", run.stdout) == ["9"]
    [comment] = json.loads(Path(outputs(machine)["review"]).read_text())["comments"]
    assert (comment["path"], comment["line"]) == ("a.py", 9)


def test_a_fork_is_written_nothing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pull_request(machine, monkeypatch)
    assert step(LOOK, root, **VALUES, HEAD_REPOSITORY="fork/r").returncode == 0
    assert "may-write" not in outputs(machine)


PLANTED = """
import os, pathlib
pathlib.Path({ran!r}).write_text(str(os.environ.get("GH_TOKEN")))
"""


def test_modules_of_a_pull_request_are_not_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pull_request(machine, monkeypatch)
    for name in ("pip", "venv", "json", "click", "sitecustomize", "usercustomize", "migrator"):
        write_tree(root, {f"{name}.py": PLANTED.format(ran=str(machine / f"{name} ran"))})
    rules = "[tpu_migrate.rules]\nown = migrator\n"
    write_tree(root, {"own.egg-info/entry_points.txt": rules, "own.egg-info/PKG-INFO": "Name: own"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "planted")
    monkeypatch.setenv("GITHUB_ACTION_PATH", str(machine / "nothing to install"))
    shutil.rmtree(machine / "temp" / "tpu-migrate")
    installed = step("Install tpu-migrate", root, PYTHON=sys.executable)
    assert "nothing to install" in installed.stderr  # pip's own words
    program(machine / "temp" / "tpu-migrate" / "bin" / "python")  # as if it were installed
    assert step(LOOK, root, **VALUES).returncode == 0
    values = {"NUMBER": "7", "COMMIT": "abc", "GH_TOKEN": "secret"}
    review = outputs(machine)["review"]
    assert step("Suggest changes", root, **values, REVIEW=review).returncode == 0
    assert len(asked(machine)) == 2
    assert not list(machine.glob("* ran"))


@pytest.mark.parametrize(
    ("file", "table"), [("pyproject.toml", "[tool.tpu-migrate]\n"), ("tpu-migrate.toml", "")]
)
def test_a_pull_request_is_configured_by_its_base(
    file: str, table: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pull_request(machine, monkeypatch)
    write_tree(root, {file: f"{table}exclude = ['*']\ntarget = 'torch_xla'\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "hidden")
    run = step(LOOK, root, **VALUES)
    assert re.findall(r"file=a.py,line=(\d+)", run.stdout) == ["9"]
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")  # as after a merge
    write_tree(root, {"b c.py": GPU})
    git(root, "commit", "-qam", "GPU code")
    run = step(LOOK, root, **VALUES)
    assert "all that is there is excluded, by *" in run.stdout


def test_values_are_no_code(machine: Path) -> None:
    root = committed(machine / "work", {"$(touch x)": GPU})
    hostile = "$(touch pwned); `touch pwned` * --nonsense"
    run = step(LOOK, root, PATHS="$(touch pwned)\n-x; touch pwned\n", ARGS=hostile)
    assert outputs(machine)["exit-code"] == "2" and run.returncode == 0
    assert sorted(p.name for p in root.iterdir()) == ["$(touch x)", ".git"]


def test_an_error_fails_and_findings_only_if_asked(machine: Path) -> None:
    for code, fail, expected in [
        ("2", "false", 2),
        ("1", "true", 1),
        ("1", "false", 0),
        ("0", "true", 0),
    ]:
        assert step("Result", machine, CODE=code, FAIL=fail).returncode == expected


def test_one_comment_is_kept_up_to_date(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = machine / "report.md"
    report.write_text("<!-- tpu-migrate -->\ntext")
    values = {"NUMBER": "7", "REPORT": str(report), "CODE": "1"}
    assert step("Comment", machine, **values).returncode == 0
    monkeypatch.setenv("GH_ANSWERS", json.dumps("11\n12"))
    assert step("Comment", machine, **values).returncode == 0
    _, (made, body), _, (changed, _) = asked(machine)
    assert "repos/o/r/issues/7/comments" in made and body == "<!-- tpu-migrate -->\ntext"
    assert "repos/o/r/issues/comments/12" in changed and "PATCH" in changed


def test_nothing_to_say_is_not_said(machine: Path) -> None:
    run = step("Comment", machine, NUMBER="7", REPORT=str(machine / "gh.py"), CODE="0")
    assert run.returncode == 0 and len(asked(machine)) == 1  # only asked


def test_a_suggestion_is_made_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pull_request(machine, monkeypatch)
    step(LOOK, root, **VALUES)
    values = {"NUMBER": "7", "COMMIT": "abc", "REVIEW": outputs(machine)["review"]}
    assert step("Suggest changes", root, **values).returncode == 0
    (_, _), (made, sent) = asked(machine)
    review = json.loads(sent)
    assert "repos/o/r/pulls/7/reviews" in made and review["commit_id"] == "abc"
    [comment] = review["comments"]
    assert '```suggestion\n    return y.to("jax")\n```' in comment["body"]
    monkeypatch.setenv("GH_ANSWERS", json.dumps(f"other\n{comment['body']}"))
    assert step("Suggest changes", root, **values).returncode == 0
    assert len(asked(machine)) == 3  # asked what is there, and left it
