"""Goldens of scripts: read, refused; runs that were killed; copies of folders."""

import hashlib
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from migrator.frameworks import find_framework
from migrator.verify import folders
from migrator.verify.command import verify_command
from migrator.verify.folders import check_size, copy_folder
from migrator.verify.goldens import keep, read_golden
from migrator.verify.originals import notes_on, record_script
from migrator.verify.recorder import recorded_process
from migrator.verify.recordings import (
    STOPPED,
    Recording,
    RecordSettings,
    record_run,
    search_path,
)
from migrator.verify.script import Script
from migrator.verify.verify_errors import VerifyError

from .support import safetensors

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and modes of files")

EVENT = {"kind": "loss", "name": "loss", "step": 0, "line": "t.py:1", "value": 0.5}


def table(tensors: bytes, **changes: Any) -> dict[str, Any]:
    return {
        "ended": "", "seconds": 1.0, "events": [EVENT], "files": [], "left_out": [],
        "randomness": {"drawn": 0, "dropped": 0, "traced": 0}, "steps": 1, "migrated": False,
        "machine": {"device": "NVIDIA H100", "machine": "x86_64", "versions": {}, "tf32": True},
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(), **changes,
    }  # fmt: skip


def test_the_search_path_leads_into_the_copy_and_to_what_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, copy, other = tmp_path / "here", tmp_path / "copy", tmp_path / "other"
    own = Path(folders.__file__).parents[2]
    given = [here / "lib", other, own, here]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, given)))
    found = search_path(here, copy)["PYTHONPATH"].split(os.pathsep)
    assert found == [str(copy / "lib"), str(other), str(copy)]
    modules = tmp_path / "modules"
    assert search_path(here, copy, modules)["PYTHONPATH"].startswith(f"{modules}{os.pathsep}")


def test_the_search_path_follows_links_and_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, copy, elsewhere = tmp_path / "project/here", tmp_path / "copy", tmp_path / "a/b"
    (here / "lib").mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    (tmp_path / "link").symlink_to(here)
    (here / "out").symlink_to(elsewhere)
    monkeypatch.chdir(here)
    for given, expected in (
        ("..", here.parent),
        ("lib/..", copy),
        ("../here/lib", copy / "lib"),
        (str(tmp_path / "link/lib"), copy / "lib"),
        ("out", copy / "out"),  # the copy has the link, too
        ("out/..", tmp_path / "a"),
    ):
        monkeypatch.setenv("PYTHONPATH", given)
        assert search_path(here, copy) == {"PYTHONPATH": str(expected)}, given


def test_a_copy_may_be_kept_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kept/train-torchax/original"
    monkeypatch.setattr(sys, "path", [str(copy), str(tmp_path), str(tmp_path / "lib")])
    recorded_process.redirect(tmp_path, copy)
    assert sys.path == [str(copy), str(copy), str(copy / "lib")]
    for name, folder in (("of_the_copy", copy), ("of_the_folder", tmp_path)):
        module = types.ModuleType(name)
        module.__file__ = str(folder / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
    assert recorded_process.imported_from(tmp_path, copy) == ["of_the_folder"]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    tensors = safetensors({"0.output.Net": ("F32", [2], [1.0, 2.0])})
    (run / "tensors.safetensors").write_bytes(tensors)
    (run / "output.txt").write_text("loss 0.5\n", encoding="utf-8")
    (run / "events.json").write_text(json.dumps(table(tensors)), encoding="utf-8")
    keep(tmp_path / "golden", run, [run], RecordSettings(seed=3), "t.py", ["--n", "1"], "0" * 64)
    return tmp_path / "golden"


class TestReading:
    def test_a_golden_is_read_as_it_was_kept(self, golden: Path) -> None:
        found = read_golden(golden)
        assert (found.script, found.args, found.device) == ("t.py", ["--n", "1"], "NVIDIA H100")
        assert found.settings.seed == 3 and found.first.events == [EVENT]
        assert found.first.printed == "loss 0.5\n" and len(found.rounded) == 1
        assert found.first.machine["tf32"] is True

    @pytest.mark.parametrize(("damage", "why"), [
        (lambda g: (g / "golden.json").unlink(), "cannot be read"),
        (lambda g: (g / "tensors.safetensors").unlink(), "cannot be read"),
        (lambda g: (g / "golden.json").write_text("{", "utf-8"), "is not JSON"),
        (lambda g: (g / "golden.json").write_text("[]", "utf-8"), "was not written by"),
        (lambda g: changed(g, schema=1), "was not written by"),
        (lambda g: changed(g, schema=99), "was not written by"),
        (lambda g: changed(g, script="other.py"), "has been changed"),
        (lambda g: (g / "rounding-1.txt").write_text("loss 0.6", "utf-8"), "has been changed"),
        (lambda g: (g / "output.txt").write_text("loss 0.6", "utf-8"), "has been changed"),
        (lambda g: cut(g / "tensors.safetensors"), "not as long as its header says"),
        (lambda g: (g / "rounding-1.safetensors").write_bytes(b"x"), "is truncated"),
        (lambda g: other_number(g / "tensors.safetensors"), "is not the file that"),
    ])  # fmt: skip
    def test_a_damaged_or_foreign_one_is_refused_in_one_line(
        self, golden: Path, damage: Callable[[Path], Any], why: str
    ) -> None:
        damage(golden)
        with pytest.raises(VerifyError, match=why) as error:
            read_golden(golden)
        assert str(error.value).startswith("golden refused: ") and "\n" not in str(error.value)

    def test_one_that_lacks_something_is_refused(self, golden: Path) -> None:
        path = golden / "golden.json"
        whole = json.loads(path.read_text("utf-8"))
        run = golden.parent / "run"
        del whole["run"]["events"]
        (run / "events.json").write_text(json.dumps(whole["run"]), "utf-8")
        keep(golden, run, [], RecordSettings(), "t.py", [], "")
        with pytest.raises(VerifyError, match="is missing or malformed"):
            read_golden(golden)

    def test_other_scripts_arguments_and_folders_are_not_taken(
        self, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from migrator.verify.script_notes import notes_on_golden

        (tmp_path / "t.py").write_text("pass", "utf-8")
        (tmp_path / "u.py").write_text("pass", "utf-8")
        monkeypatch.chdir(tmp_path)
        known = read_golden(golden)
        with pytest.raises(VerifyError, match=r"it is of t.py, not of u.py"):
            notes_on_golden(known, Script.find(Path("u.py"), ["--n", "1"]))
        with pytest.raises(VerifyError, match=r"other arguments \(--n 1\)"):
            notes_on_golden(known, Script.find(Path("t.py"), ["--n", "2"]))
        notes = notes_on_golden(known, Script.find(Path("t.py"), ["--n", "1"]))
        assert notes == ["the code has changed since the golden was recorded"]

    def test_a_folder_with_other_things_is_not_written_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "t.py").write_text("pass", "utf-8")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine.txt").write_text("x", "utf-8")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(VerifyError, match="is not empty"):
            record_script(
                Path("t.py"), [], tmp_path / "out", Path(sys.executable), RecordSettings()
            )


def changed(golden: Path, **fields: Any) -> None:
    path = golden / "golden.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def other_number(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")


class TestKilled:
    """A program in the place of the recorder, which leaves what a killed one leaves."""

    PART = """\
import json, os, pathlib, signal, sys, time
out = pathlib.Path(json.loads(pathlib.Path(sys.argv[1]).read_text())["output"])
(out / "tensors.safetensors.part").write_bytes(b"\\0\\0\\x80\\x3f" + b"half")
entry = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
lines = [{"machine": {"device": "CPU", "machine": "x", "versions": {}, "tf32": False}},
         {"rank": 1},
         {"event": {"kind": "loss", "name": "loss", "step": 0, "line": "", "value": 0.5},
          "steps": 1, "entries": entry}]
text = "".join(json.dumps({"entries": {}, **line}) + "\\n" for line in lines)
(out / "tensors.safetensors.notes").write_text(text + '{"event": {"ki')
"""

    def record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, **how: Any) -> Any:
        from contextlib import nullcontext

        from migrator.verify import recordings

        program = tmp_path / "recorder"
        program.mkdir()
        (program / "__main__.py").write_text(self.PART + end, "utf-8")
        monkeypatch.setattr(recordings, "recorder", lambda _: nullcontext(program))
        monkeypatch.setattr(recordings, "_GRACE", 0.5)
        (tmp_path / "copy").mkdir()
        return record_run(
            Path(sys.executable), "t.py", [], tmp_path / "copy", tmp_path / "out",
            RecordSettings(**how), framework=find_framework("torch"), stand_in=True,
            original=tmp_path,
        )[1]  # fmt: skip

    @posix
    def test_what_a_killed_run_recorded_is_kept_and_labelled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = self.record(tmp_path, monkeypatch, "os.kill(os.getpid(), 9)")
        assert found.ended == "ended by SIGKILL (out of memory?)"
        assert found.steps == 1 and found.events[0]["value"] == 0.5
        table = json.loads((tmp_path / "out" / "events.json").read_text("utf-8"))
        assert table["rank"] == 1
        data = found.path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        assert json.loads(data[8 : 8 + length])["a"]["data_offsets"] == [0, 4]
        assert data[8 + length :] == b"\0\0\x80\x3f"  # and no half of a tensor

    @posix
    def test_one_that_ignores_the_time_limit_is_killed_and_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        end = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
        found = self.record(tmp_path, monkeypatch, end, timeout=2.0)
        assert found.ended == STOPPED and found.was_stopped and len(found.events) == 1

    def test_the_memory_limit_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        end = "print('terminate called after throwing: std::bad_alloc'); sys.exit(3)"
        found = self.record(tmp_path, monkeypatch, end, memory=2**31)
        assert found.ended == "failed with exit code 3, out of memory (--memory 2)"


class TestCopies:
    def test_environments_caches_and_version_control_stay(self, tmp_path: Path) -> None:
        source = tmp_path / "project"
        for name in (".git/HEAD", "env/pyvenv.cfg", "__pycache__/a.pyc", "src/a.py", "data/x"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text("x", "utf-8")
        for name in ("golden.json", "tensors.safetensors"):  # recorded beside the program
            (source / "before").mkdir(exist_ok=True)
            (source / "before" / name).write_text("x", "utf-8")
        copy = copy_folder(source, tmp_path / "copy", [source / "data"])
        assert [p.relative_to(copy).as_posix() for p in copy.rglob("*")] == ["src", "src/a.py"]

    def test_a_folder_that_is_too_large_is_refused_but_not_for_its_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folders, "COPIED_BYTES", 1000)
        (tmp_path / "env").mkdir()
        (tmp_path / "env" / "pyvenv.cfg").write_text("x" * 2000, "utf-8")
        for name in ("golden.json", "tensors.safetensors"):
            (tmp_path / "golden").mkdir(exist_ok=True)
            (tmp_path / "golden" / name).write_text("x" * 2000, "utf-8")
        check_size(tmp_path)
        (tmp_path / "data").write_text("x" * 2000, "utf-8")
        with pytest.raises(VerifyError, match="start from a smaller folder"):
            check_size(tmp_path)

    @posix
    def test_links_lead_into_the_copy_or_to_where_they_led(self, tmp_path: Path) -> None:
        source, data = tmp_path / "project" / "code", tmp_path / "project" / "data"
        (source / "out").mkdir(parents=True)
        data.mkdir()
        (data / "x").write_text("1", "utf-8")
        (source / "data").symlink_to("../data")
        (source / "there").symlink_to(source / "out")
        (source / "gone").symlink_to("nowhere")
        copy = copy_folder(source, tmp_path / "a" / "b" / "copy")
        assert (copy / "data" / "x").read_text("utf-8") == "1"
        (copy / "there" / "result").write_text("2", "utf-8")
        assert (copy / "out" / "result").is_file() and not (source / "out" / "result").exists()
        assert (copy / "gone").is_symlink()

    @posix
    def test_a_folder_that_is_read_only_can_be_written_to_in_the_copy(self, tmp_path: Path) -> None:
        source = tmp_path / "project"
        (source / "out").mkdir(parents=True)
        (source / "out" / "a").write_text("1", "utf-8")
        for path in (source / "out" / "a", source / "out", source):
            path.chmod(0o444 if path.is_file() else 0o555)
        copy = copy_folder(source, tmp_path / "copy")
        assert {oct(p.stat().st_mode & 0o200) for p in (copy, *copy.rglob("*"))} == {"0o200"}
        source.chmod(0o755)
        (source / "out").chmod(0o755)


class TestModules:
    def test_a_module_is_found_as_python_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "pkg" / "app").mkdir(parents=True)
        (tmp_path / "pkg" / "train.py").write_text("pass", "utf-8")
        (tmp_path / "pkg" / "app" / "__main__.py").write_text("pass", "utf-8")
        monkeypatch.chdir(tmp_path)
        found = Script.find(Path("pkg.train"), [], module=True)
        assert (found.entry, found.name) == ("pkg/train.py", "-m pkg.train")
        assert Script.find(Path("pkg.app"), [], module=True).entry == "pkg/app/__main__.py"
        with pytest.raises(VerifyError, match="no such module"):
            Script.find(Path("pkg.other"), [], module=True)

    @pytest.mark.parametrize("folder", ["'../..'", "Path(__file__).parents[2]"])
    def test_what_a_script_imports_from_above_is_copied_too(
        self, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = tmp_path / "pkg" / "task"
        task.mkdir(parents=True)
        model = "import torch.distributed as dist\ndist.init_process_group('nccl')\nsize = 3\n"
        (tmp_path / "pkg" / "model.py").write_text(model, "utf-8")
        monkeypatch.chdir(task)
        text = f"import sys\nfrom pathlib import Path\nsys.path.append({folder})\n"
        Path("t.py").write_text(text, "utf-8")
        assert Script.find(Path("t.py"), []).folder == task
        Path("t.py").write_text(f"{text}from pkg.model import size\n", "utf-8")
        found = Script.find(Path("t.py"), [], devices=2)
        assert (found.folder, found.start, found.entry) == (tmp_path, "pkg/task", "t.py")
        assert found.ranks is not None and found.ranks.count == 2

    @pytest.mark.parametrize("arguments", [
        ["t.py", "--tolerance", "outputs=2"], ["t.py", "--memory", "0"], ["tiny", "--memory", "1"],
        ["tiny", "--tolerance", "2"], ["tiny", "--golden", "g"],
    ])  # fmt: skip
    def test_wrong_usage_is_one_clear_line(self, arguments: list[str]) -> None:
        done = CliRunner().invoke(verify_command, arguments)
        assert done.exit_code == 2 and "Error: " in done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("device", "tensors_on", "said"),
    [("NVIDIA H200", "cpu", True), ("NVIDIA H200", "cuda", False), ("CPU stand-in", "cpu", False)],
)
def test_a_script_that_did_not_use_the_gpu_is_no_golden_of_it(
    device: str, tensors_on: str, said: bool
) -> None:
    random, machine = {"dropped": 0}, {"device": device}
    found = Recording(Path(), [EVENT], [], "", "", 1, 1.0, random, machine, devices=[tensors_on])
    notes = notes_on(found, RecordSettings())
    assert any("no tensor was on the GPU" in note for note in notes) is said
