"""`tpu-migrate mcp`: a session of the SDK's client; what is outside of the roots is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import cli, committed, read_tree, write_tree
from mcp import Client

from migrator.mcp_server import guides
from migrator.mcp_server.roots import Roots
from tests.command.agents import called, refused, session

TRAIN = """import torch
import flash_attn_interface

model = torch.nn.Linear(2, 2).cuda()
print(model(torch.ones(2, 2).cuda()).sum())
"""
FILES = {"p/train.py": TRAIN, "p/lib/net.py": "import torch\n\n\ndef f(x):\n    return x.cuda()\n"}
OTHER = {"other.py": TRAIN}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tree(tmp_path / "outside", OTHER)
    project = committed(tmp_path / "root", FILES)
    (project / "link").symlink_to(tmp_path / "outside")
    return project


def test_a_session(root: Path) -> None:
    """From the first look to what is left; nothing is written that wasn't asked for."""

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {*tools} == {
            "assess", "migrate", "remaining", "explain", "doctor",
            "record", "verify", "compile_for",
        }  # fmt: skip
        assert all(tool.description for tool in tools.values())
        assessed = await called(client, "assess", paths=["p"])
        (program,) = assessed["programs"]
        assert Path(program["program"]).name == "train.py"
        seen: list[float] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        before = read_tree(root)
        asked = {"paths": ["p/train.py"], "target": "torchax"}
        done = await client.call_tool("migrate", asked, progress_callback=progress)
        diff = done.structured_content["diff"]  # type: ignore[index]
        assert '+model = torch.nn.Linear(2, 2).to("jax")\n' in diff and "GIT binary" not in diff
        one = await called(client, "migrate", **asked, line=5, code="MOV001")
        assert '+print(model(torch.ones(2, 2).to("jax")).sum())' in one["diff"]
        assert "-model" not in one["diff"] and len(seen) > 0
        left = await called(client, "remaining", **asked)
        (place,) = left["remaining"]
        assert place["code"] == "LIB001" and place["by_hand"] in left["by_hand"]
        assert read_tree(root) == before
        await called(client, "migrate", **asked, write=True)
        assert b'.to("jax")' in (root / "p/train.py").read_bytes()
        assert b".cuda()" in (root / "p/lib/net.py").read_bytes()

    session(root, talk=talk)


def test_what_is_outside_is_refused(root: Path) -> None:
    async def talk(client: Client) -> None:
        for path in ("../outside/other.py", "link/other.py", "/etc/passwd", "p/../../outside"):
            for tool in ("remaining", "migrate", "assess"):
                given: dict[str, Any] = {} if tool == "assess" else {"target": "torchax"}
                said = await refused(client, tool, paths=[path], **given)
                assert "outside of the roots" in said and "torch" not in said.partition("root")[0]
        assert "no such file" in await refused(client, "assess", paths=["nothing.py"])
        (root / "p/linked.py").symlink_to(root.parent / "outside/other.py")
        said = await refused(client, "remaining", paths=["p/linked.py"], target="torchax")
        assert "outside of the roots" in said

    session(root, talk=talk)


def test_what_a_program_imports_from_outside_is_not_shown(tmp_path: Path) -> None:
    project = committed(tmp_path / "all", {"own/train.py": "import net\n\nnet.f(1)\n" + TRAIN})
    write_tree(project, {"net.py": "import torch\n\n\ndef f(x):\n    return x.cuda()\n"})
    (project / "own/pyproject.toml").write_text("")

    async def talk(client: Client) -> None:
        tool = {"paths": ["train.py"], "target": "torchax"}
        result = await client.call_tool("migrate", tool)
        said = "".join(getattr(part, "text", "") for part in result.content)
        assert "def f" not in said

    session(project / "own", talk=talk)


def test_nothing_runs_unless_it_may(root: Path) -> None:
    (root / "p/train.py").write_text("from pathlib import Path\nPath('ran').write_text('')\n")

    async def talk(client: Client) -> None:
        given = {"script": "p/train.py"}
        for tool, more in (
            ("verify", {"target": "torchax"}),
            ("compile_for", {"target": "torchax"}),
            ("record", {"output": "golden"}),
        ):
            assert "--allow-run" in await refused(client, tool, **given, **more)
        await called(client, "remaining", paths=["p"], target="torchax")

    session(root, talk=talk)
    assert not list(root.rglob("ran"))


def test_where_it_may_run_paths_are_still_refused(root: Path) -> None:
    async def talk(client: Client) -> None:
        for given in (
            {"script": "link/other.py"},
            {"script": "p/train.py", "golden": "../outside"},
        ):
            said = await refused(client, "verify", target="torchax", **given)
            assert "outside of the roots" in said
        said = await refused(client, "record", script="p/train.py", output="../outside/golden")
        assert "outside of the roots" in said
        said = await refused(
            client, "compile_for", script="p/train.py", target="torchax", topology="v1"
        )
        assert "v6e-1" in said

    session(root, "--allow-run", talk=talk)


def test_pages_and_the_prompt(root: Path) -> None:
    async def talk(client: Client) -> None:
        async def page(of: str) -> str:
            (content,) = (await client.read_resource(f"tpu-migrate://{of}")).contents
            return str(getattr(content, "text", ""))

        assert "| [LIB001](LIB001.md) |" in await page("rules")
        assert (await page("rules/LIB001")).startswith("# LIB001 cuda-only-library")
        guide = await page("targets/torchax")
        assert '"jax"' in guide and "torchax==" in guide and "LIB006" in guide
        prompt = await client.get_prompt("finish", {"path": "p", "target": "torchax"})
        (message,) = prompt.messages
        said = str(getattr(message.content, "text", ""))
        assert "loosen a tolerance" in said and "`remaining` p" in said
        assert "there is no code" in await refused(client, "explain", code="XYZ999")
        found = await called(client, "doctor")
        assert {"torchax", "torch_xla"} <= {each["target"] for each in found["targets"]}

    session(root, talk=talk)


def test_roots_of_several_folders(tmp_path: Path) -> None:
    for name in ("one", "two", "one/inner"):
        write_tree(tmp_path / name, {"a.py": "", f"{Path(name).name}.py": ""})
    roots = Roots([tmp_path / "one", tmp_path / "two", tmp_path / "one/inner"])
    assert roots.find("two.py") == tmp_path / "two/two.py"
    assert roots.find("a.py") == tmp_path / "one/a.py"
    assert roots.root_of(tmp_path / "one/inner/a.py") == tmp_path / "one/inner"
    assert not roots.holds(tmp_path / "one2") and not roots.holds(tmp_path)


def test_the_tools_that_the_prompt_names_are_there(root: Path) -> None:
    async def talk(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    names = session(root, talk=talk)
    said = guides.how_to_work("p", "torchax")
    assert all(f"`{name}`" in said for name in names - {"doctor"})


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.mcp_server.command.find_spec", lambda name: None)
    said = cli("mcp", cwd=tmp_path)
    assert said.returncode == 2 and b".[mcp]" in said.stderr


def test_the_server_leaves_with_its_client(root: Path) -> None:
    """At the end of its input: no server stays behind."""
    command = [sys.executable, "-P", "-m", "migrator", "mcp", "--root", str(root)]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stdout
