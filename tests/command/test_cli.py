"""The command, run as a user runs it: output, exit codes, and one clear line for every failure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from helpers import TARGETS, cli, committed, git, one_line, read_tree, shell, write_tree

from migrator import __version__
from migrator.registry import registry

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TPU = 'import torch\n\n\ndef f(x):\n    return x.to("jax")\n'
SCRIPT = (
    "import torch\n\n\ndef main():\n    x = torch.ones(2).cuda()\n"
    "    torch.cuda.synchronize()\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
STREAM = "import torch\ns = torch.cuda.Stream()\n"  # reported, never changed
ADVICE = "import torch\ntorch.set_default_dtype(torch.bfloat16)\n"
TO = ("--target", "torchax")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))


def out(run: CompletedProcess[bytes]) -> str:
    return run.stdout.decode()


def squeezed(text: str) -> str:
    return " ".join(text.split())


# ---- in place ------------------------------------------------------------------------------------


def test_rewrites_in_place_and_says_what_it_did(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": STREAM, "c.py": "x = 1\n"})
    run = cli(".", *TO, cwd=root)
    assert run.returncode == 0 and not run.stderr
    assert (root / "a.py").read_text() == TPU
    assert (root / "b.py").read_text() == STREAM
    assert "a.py  MOV001" in out(run)
    assert "b.py:2:5  CUD003  torch.cuda.Stream  streams have no counterpart" in out(run)
    assert "3 files scanned, 1 changed" in out(run)
    assert "2 GPU constructs = 1 rewritten + 0 kept + 1 reported: 50% automatic" in out(run)


def test_refuses_what_git_does_not_hold_in_one_line(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n", "b.py": GPU})
    (root / "a.py").write_text(GPU)
    run = cli(".", *TO, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "not staged", "--allow-dirty", "-o", "nothing was written")
    assert (root / "b.py").read_text() == GPU
    git(root, "add", "a.py")
    assert cli(".", *TO, cwd=root).returncode == 0  # staged is fine: pre-commit works so
    assert (root / "a.py").read_text() == TPU


def test_outside_of_version_control(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"a.py": GPU})
    run = cli("a.py", *TO, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "not under version control", "--allow-dirty")
    assert cli("a.py", *TO, "--allow-dirty", cwd=root).returncode == 0
    assert (root / "a.py").read_text() == TPU


def test_the_last_output_counts_as_clean(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\n" + GPU + "torch.cuda.empty_cache()\n"})
    assert cli("a.py", *TO, "--select", "MOV", cwd=root).returncode == 0
    assert cli("a.py", *TO, cwd=root).returncode == 0
    assert (root / "a.py").read_text() == "import torch\n" + TPU


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    root = committed(tmp_path, {"main.py": SCRIPT})
    cli(".", *TO, cwd=root)
    first = read_tree(root, runtime=True)
    run = cli(".", *TO, cwd=root)
    assert run.returncode == 0 and "0 changed" in out(run)
    assert read_tree(root, runtime=True) == first
    assert cli(".", *TO, "--check", cwd=root).returncode == 0


# ---- -o ------------------------------------------------------------------------------------------


def test_output_folder(tmp_path: Path) -> None:
    root = committed(tmp_path / "p", {"main.py": SCRIPT, "data.bin": b"\0"})
    (root / "new.txt").write_text("untracked")
    before = read_tree(root, runtime=True)
    run = cli("p", *TO, "-o", "q", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert read_tree(root, runtime=True) == before
    copied = read_tree(tmp_path / "q", runtime=True)
    assert before.keys() <= copied.keys() and "tpu_runtime/__init__.py" in copied
    assert b"torch.cuda" not in copied["main.py"] and copied["data.bin"] == b"\0"
    assert not (tmp_path / "q" / ".git").exists()


@pytest.mark.parametrize(
    ("output", "word"), [("p/q", "inside"), ("full", "not an empty"), (".", "")]
)
def test_output_folder_refused(tmp_path: Path, output: str, word: str) -> None:
    write_tree(tmp_path, {"p/a.py": GPU, "full/x": "x"})
    before = read_tree(tmp_path)
    run = cli("p", *TO, "-o", output, cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, f"-o {output}", word)
    assert read_tree(tmp_path) == before


# ---- --diff --------------------------------------------------------------------------------------

LAYOUTS: dict[str, bytes] = {
    "plain.py": SCRIPT.encode(),
    "crlf.py": SCRIPT.replace("\n", "\r\n").encode(),
    "open.py": GPU.rstrip().encode(),
    "crlf_open.py": GPU.replace("\n", "\r\n").rstrip().encode(),
    "mixed.py": GPU.replace("\n", "\r\n", 1).encode() + b"y = 1\n\x0c\n",
    "bom.py": b"\xef\xbb\xbf" + GPU.encode(),
    "latin.py": "# -*- coding: latin-1 -*-\n# café\n".encode("latin-1") + GPU.encode(),
    "utf.py": f"# größe ✓ \u2028 \x85\n{GPU}".encode(),
    "dir with space/ä.py": GPU.encode(),
    "feeds.py": b"\x0c\n" + GPU.encode() + b"\x0cx.cuda()\n\x0c",
    "mac.py": GPU.replace("\n", "\r").encode(),
    "tab.py": b"import torch\n\n\ndef f(x):\n\treturn x.cuda()\t\n\n\n\n",
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_diff_can_be_applied(tmp_path: Path, target: str) -> None:
    root = committed(tmp_path / "p", dict(LAYOUTS))
    before = read_tree(root, runtime=True)
    diff = cli(".", "--target", target, "--diff", "--with-runtime", cwd=root)
    assert diff.returncode == 1
    assert b"\x1b" not in diff.stdout  # plain in a pipe
    assert read_tree(root, runtime=True) == before  # nothing was written
    cli(".", "--target", target, "-o", "../expected", cwd=root)
    git(root, "apply", "--whitespace=nowarn", "-", stdin=diff.stdout)
    expected = read_tree(tmp_path / "expected", runtime=True)
    assert read_tree(root, runtime=True) == expected
    assert "tpu_runtime/__init__.py" in expected  # companions were new files in the diff
    again = cli(".", "--target", target, "--diff", cwd=root)
    assert (again.returncode, again.stdout) == (0, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_names_in_a_diff_are_quoted_as_git_does(tmp_path: Path) -> None:
    names = ["a\nb.py", 'tab\there/quo"te.py', "back\\slash.py", "\x1b\x7f.py", " b\u00e4r .py"]
    root = committed(tmp_path / "p", dict.fromkeys(names, SCRIPT))
    diff = cli(".", *TO, "--diff", "--with-runtime", cwd=root)
    git(root, "apply", "-", stdin=diff.stdout)
    assert cli(".", *TO, "--diff", "--with-runtime", cwd=root).stdout == b""
    headers = git(root, "-c", "core.quotepath=false", "diff").splitlines()
    assert {line for line in headers if line.startswith("+++ ")} <= {
        line.decode() + "\t" * (b" " in line[4:] and not line.endswith(b'"'))  # git's own oddity
        for line in diff.stdout.splitlines()
    }


def test_a_diff_of_a_folder_below_applies_from_where_it_was_made(tmp_path: Path) -> None:
    root = committed(tmp_path, {"sub/main.py": SCRIPT})
    diff = cli("sub", *TO, "--diff", "--with-runtime", cwd=root)
    git(root, "apply", "-", stdin=diff.stdout)
    assert "tpu_runtime.setup()" in (root / "sub" / "main.py").read_text()
    assert (root / "sub" / "tpu_runtime" / "__init__.py").is_file()


def test_a_diff_updates_companions(tmp_path: Path) -> None:
    root = committed(tmp_path, {"main.py": SCRIPT})
    cli(".", *TO, cwd=root)
    module = root / "tpu_runtime" / "seeds.py"
    current = module.read_bytes()
    module.write_bytes(b"# other\n" + current)
    (root / "b.py").write_text(SCRIPT)
    git(root, "add", "-A")
    diff = cli(".", *TO, "--diff", "--with-runtime", cwd=root)
    git(root, "apply", "-", stdin=diff.stdout)
    assert module.read_bytes() == current


def test_what_is_said_beside_a_diff_goes_to_standard_error(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": STREAM})
    run = cli(".", *TO, "--diff", cwd=root)
    assert run.stdout.startswith(b"--- a/a.py\n+++ b/a.py\n@@")
    assert b"CUD003" not in run.stdout and b"CUD003" in run.stderr


def test_a_diff_leaves_the_runtime_out_and_says_so(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": SCRIPT})
    run = cli(".", *TO, "--diff", cwd=root)
    assert run.stdout.startswith(b"--- a/a.py\n") and b"tpu_runtime/" not in run.stdout
    whole = cli(".", *TO, "--diff", "--with-runtime", cwd=root).stdout
    assert whole.startswith(run.stdout)
    rest = whole.removeprefix(run.stdout)
    files, lines = rest.count(b"\n+++ b/tpu_runtime/"), rest.count(b"\n+") - rest.count(b"\n+++ ")
    said = f"tpu_runtime/  runtime of the migrated code: {files} files, {lines:,} lines"
    assert f"{said} (--with-runtime shows them)" in run.stderr.decode()
    assert cli(".", *TO, "--check", "--with-runtime", cwd=root).returncode == 2


def test_a_diff_is_no_reason_to_be_clean(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"a.py": GPU})
    assert cli(".", *TO, "--diff", cwd=root).returncode == 1
    assert cli(".", *TO, "--check", cwd=root).returncode == 1


# ---- exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code", "strict"),
    [
        ("x = 1\n", 0, 0),
        ("model.load_state_dict(f(), non_blocking=True)  # cuda\n", 0, 0),
        (GPU, 1, 1),
        (STREAM, 1, 1),
        (ADVICE, 0, 1),
        ("x = = cuda\n", 2, 2),
    ],
)
@pytest.mark.parametrize("mode", ["--check", "--diff"])
def test_codes_of_check_and_diff(
    tmp_path: Path, source: str, code: int, strict: int, mode: str
) -> None:
    write_tree(tmp_path, {"a.py": source})
    assert cli("a.py", *TO, mode, cwd=tmp_path).returncode == code
    assert cli("a.py", *TO, mode, "--strict", cwd=tmp_path).returncode == strict
    assert (tmp_path / "a.py").read_text() == source


@pytest.mark.parametrize(
    ("source", "code"), [(STREAM, 0), (ADVICE, 0), (GPU, 0), ("cuda = =\n", 2)]
)
def test_codes_of_writing(tmp_path: Path, source: str, code: int) -> None:
    write_tree(tmp_path, {"a.py": source})
    assert cli("a.py", *TO, "--allow-dirty", "--strict", cwd=tmp_path).returncode == code


def test_advice_is_shown(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": ADVICE})
    run = cli("a.py", *TO, "--check", cwd=tmp_path)
    assert "Advice" in out(run) and "PRE006" in out(run)


def test_the_same_in_many_files_is_said_once(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"a{number}.yaml").write_text("gpus: 4\nuse_cuda: true\n")
    (tmp_path / "b.py").write_text("import torch\nx.cuda()\n")
    text = out(cli(".", *TO, "--check", cwd=tmp_path))
    assert text.count("CFG001") == 1 and "a0.yaml:1:1" in text and "also 2:1 use_cuda: true" in text
    assert "and the same in a1.yaml, a2.yaml and 5 more" in text


# ---- standard input ------------------------------------------------------------------------------


def test_standard_input(tmp_path: Path) -> None:
    source = (GPU + STREAM).replace("\n", "\r\n").encode()
    run = cli("-", *TO, cwd=tmp_path, stdin=source)
    assert run.stdout == source.replace(b"x.cuda()", b'x.to("jax")')
    assert b"CUD003" in run.stderr and b"<stdin>:7:" in run.stderr
    assert run.returncode == 0
    assert cli("-", *TO, "--check", cwd=tmp_path, stdin=source).returncode == 1
    assert cli("-", *TO, "--check", cwd=tmp_path, stdin=b"x = 1\n").stdout == b""


def test_standard_input_that_is_bad_comes_back_as_it_was(tmp_path: Path) -> None:
    for source in (b"x = = cuda\n", b"cuda\0", b"'cuda \xff'\n"):
        run = cli("-", *TO, "-q", cwd=tmp_path, stdin=source)
        assert run.returncode == 2
        assert run.stdout == source
        assert b"<stdin>" in run.stderr and b"Traceback" not in run.stderr


def test_standard_input_as_json(tmp_path: Path) -> None:
    run = cli("-", *TO, "--check", "--format", "json", cwd=tmp_path, stdin=GPU.encode())
    document = json.loads(run.stdout)
    assert document["files"][0]["diagnostics"][0]["code"] == "MOV001"
    assert run.returncode == 1


def test_quiet_standard_input(tmp_path: Path) -> None:
    run = cli("-", *TO, "--quiet", cwd=tmp_path, stdin=(GPU + STREAM).encode())
    assert run.stdout.decode() == TPU + STREAM and run.stderr == b""


# ---- reports -------------------------------------------------------------------------------------


def test_json(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"a.py": GPU, "b.py": STREAM + ADVICE, "c.py": "x = 1\n", "d.py": "cuda = =\n"}
    )
    run = cli(".", *TO, "--check", "--format", "json", "--statistics", cwd=tmp_path)
    assert run.returncode == 2 and not run.stderr
    document = json.loads(run.stdout)
    assert (document["version"], document["target"]) == (__version__, "torchax")
    files = {Path(file["path"]).name: file for file in document["files"]}
    assert {name: file["changed"] for name, file in files.items()} == {
        "a.py": True, "b.py": False, "d.py": False,
    }  # fmt: skip
    assert files["a.py"]["diagnostics"] == [{
        "code": "MOV001", "severity": "info", "outcome": "rewritten", "message": "",
        "construct": "x.cuda", "safety": "safe",
        "why": "same meaning, within the documented tolerance",
        "start": {"line": 5, "column": 14}, "end": {"line": 5, "column": 18},
    }]  # fmt: skip
    kinds = [(d["severity"], d["outcome"]) for d in files["b.py"]["diagnostics"]]
    assert ("warning", "reported") in kinds and ("advice", None) in kinds
    assert [d["severity"] for d in files["d.py"]["diagnostics"]] == ["error"]
    summary = document["summary"]
    assert summary["scanned"] == 4 and summary["changed"] == 1 and summary["advice"] == 1
    assert (
        summary["constructs"] == summary["rewritten"] + summary["kept"] + summary["reported"] == 3
    )
    assert {"code": "MOV001", "rewritten": 1} in document["statistics"]
    assert "statistics" not in json.loads(
        out(cli(".", *TO, "--check", "--format", "json", cwd=tmp_path))
    )


def test_json_lists_companions(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": SCRIPT})
    run = cli("main.py", *TO, "--check", "--format", "json", cwd=tmp_path)
    assert str(Path("tpu_runtime", "__init__.py")) in json.loads(run.stdout)["companions"]


def test_json_with_a_diff_is_still_json(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    assert json.loads(cli(".", *TO, "--diff", "--format", "json", cwd=tmp_path).stdout)["files"]


def test_quiet_and_verbose(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU + "y.to(d, non_blocking=True)\n", "b.py": "cuda = =\n"})
    quiet = cli(".", *TO, "--check", "-q", cwd=tmp_path)
    assert out(quiet).splitlines() == [line for line in out(quiet).splitlines() if "ERR001" in line]
    assert "b.py:1" in out(quiet)
    normal, verbose = (out(cli(".", *TO, "--check", *v, cwd=tmp_path)) for v in ((), ("-v",)))
    assert "non_blocking" not in normal and "MOV005  kept" in verbose
    assert "5:14  MOV001  rewritten" in verbose


def test_what_is_right_is_told_of_files_that_stay(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\n\n\ndef f(m, p):\n    torch.save(m, p)\n"})
    normal, verbose = (out(cli(".", *TO, "--check", *v, cwd=tmp_path)) for v in ((), ("-v",)))
    assert "1 GPU construct = 0 rewritten + 1 kept" in normal and "a.py" not in normal
    assert re.search(r"^a\.py  stays as it is\n +5:5  IOS002  kept +torch\.save", verbose, re.M)


def test_statistics(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU * 3 + STREAM})
    text = squeezed(out(cli(".", *TO, "--check", "--statistics", cwd=tmp_path)))
    assert f"MOV001 3 · · {registry().rules['MOV001'].summary}" in text
    assert "CUD003 · · 1" in text


def test_many_places_with_one_reason_are_all_listed(tmp_path: Path) -> None:
    """Every construct that is left has its line and column somewhere."""
    write_tree(tmp_path, {"a.py": "import torch\n" + "s = torch.cuda.Stream()\n" * 40})
    text = out(cli(".", *TO, "--check", cwd=tmp_path))
    assert all(f"{line}:5" in text for line in range(2, 42))


def test_version_and_help(tmp_path: Path) -> None:
    assert out(cli("--version", cwd=tmp_path)).strip().endswith(__version__)
    text = out(cli("--help", cwd=tmp_path))
    assert "PATH" in text and "--target" in text and "explain" in text
    for option in ("--diff", "--check", "--select", "--unsafe", "--allow-dirty", "--format"):
        assert option in out(cli("migrate", "--help", cwd=tmp_path))


def test_without_arguments_it_shows_its_help(tmp_path: Path) -> None:
    result = cli(cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(b"Usage: tpu-migrate PATH... --target")
    assert len(result.stderr.splitlines()) > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["check", "."],
            "check: no such file or folder, and no command: tpu-migrate PATH --target",
        ),
        (["init"], "init: no such file or folder, and no command: put target = TARGET under"),
        (
            [".", "--fix"],
            "no such option: --fix; tpu-migrate PATH --target TARGET rewrites in place",
        ),
        (["completion"], "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish"),
    ],
)
def test_words_of_other_tools_are_told_what_to_say(
    tmp_path: Path, words: list[str], said: str
) -> None:
    result = cli(*words, cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr.decode()
    assert len(result.stderr.splitlines()) == 1


def test_rules_and_explain(tmp_path: Path) -> None:
    table = out(cli("rules", cwd=tmp_path))
    assert all(code in table and rule.name in table for code, rule in registry().rules.items())
    text = out(cli("explain", "mov001", cwd=tmp_path))
    assert "MOV001" in text and 'x.to("jax")' in text.replace("'", '"') and "torch_xla" in text
    for code, rule in registry().rules.items():
        text = squeezed(out(cli("explain", code, cwd=tmp_path))).lower()
        assert f"{code} {rule.name}".lower() in text
    one_line(cli("explain", "XYZ999", cwd=tmp_path).stderr, "XYZ999", "tpu-migrate rules")


# ---- options -------------------------------------------------------------------------------------


def test_select_ignore_unsafe(tmp_path: Path) -> None:
    source = "import torch\n" + GPU + "torch.cuda.empty_cache()\nm = m.half()\n"
    filtered = {
        options: out(cli("-", *TO, *options, cwd=tmp_path, stdin=source.encode()))
        for options in (
            ("--select", "MOV001"), ("--select", "MOV,CUD"), ("--select", "MOV", "--select", "CUD"),
            ("--ignore", "MOV"), ("--unsafe",),
        )
    }  # fmt: skip
    texts = list(filtered.values())
    assert 'to("jax")' in texts[0] and "empty_cache" in texts[0]
    assert 'to("jax")' in texts[1] and "empty_cache" not in texts[1] and texts[1] == texts[2]
    assert "x.cuda()" in texts[3] and "empty_cache" not in texts[3]
    assert ".bfloat16()" in texts[4]


def test_precision_and_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": SCRIPT})
    options = ("--precision", "high", "--runtime", "installed", "--allow-dirty")
    assert cli(".", *TO, *options, cwd=tmp_path).returncode == 0
    assert 'setup(precision="high")' in (tmp_path / "main.py").read_text()
    assert not (tmp_path / "tpu_runtime").exists()


@pytest.mark.parametrize("pattern", ["old", "old/", "old/*", "old/b.py", "b.py", "*/b.py"])
def test_exclude(tmp_path: Path, pattern: str) -> None:
    write_tree(tmp_path, {"a.py": GPU, "old/b.py": GPU})
    cli(".", *TO, "--exclude", pattern, "--allow-dirty", cwd=tmp_path)
    assert (tmp_path / "a.py").read_text() == TPU
    assert (tmp_path / "old" / "b.py").read_text() == GPU


def test_folders_that_are_no_source_are_passed_over(tmp_path: Path) -> None:
    names = [".git", "venv", ".venv", "node_modules", "__pycache__", "build_env/lib/site-packages"]
    write_tree(
        tmp_path, {f"{name}/x.py": GPU for name in names} | {"a.py": GPU, "env/pyvenv.cfg": ""}
    )
    write_tree(tmp_path, {"env/b.py": GPU})
    text = out(cli(".", *TO, "--check", cwd=tmp_path))
    assert "1 files scanned" in text or "1 file scanned" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a.py",), ("no target", "--target")),
        (("a.py", "--target", "cpu"), ("--target", "cpu", "torchax")),
        (("missing.py", *TO), ("missing.py", "no such file")),
        (("reveiw", "HEAD"), ("reveiw", "no such file", "review?")),
        ((*TO,), ("no PATH",)),
        (("a.py", *TO, "--diff", "--check"), ("--diff", "--check")),
        (("a.py", *TO, "--diff", "-o", "q"), ("-o", "--diff")),
        (("a.py", "b.py", *TO, "-o", "q"), ("-o", "one path")),
        (("-", *TO, "-o", "q"), ("-o", "standard input")),
        (("-", "a.py", *TO), ("-",)),
        (("a.py", *TO, "--select", "XYZ"), ("--select", "XYZ")),
        (("a.py", *TO, "--nonsense"), ("--nonsense",)),
        (("a.py", *TO, "--jobs", "0"), ("--jobs",)),
        (("a.py", *TO, "--precision", "low"), ("--precision",)),
        (("a.py", *TO, "--format", "xml"), ("--format",)),
    ],
)
def test_wrong_usage_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    write_tree(tmp_path, {"a.py": GPU, "b.py": GPU})
    run = cli(*arguments, cwd=tmp_path, stdin=b"")
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "tpu-migrate: ", *words)
    assert read_tree(tmp_path) == {"a.py": GPU.encode(), "b.py": GPU.encode()}


@pytest.mark.parametrize(
    "arguments",
    [(*TO, "--check", "a.py", "--diff-base", "HEAD"), ("review", "HEAD"), ("--hook", *TO, "a.py")],
)
def test_without_git_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    monkeypatch.setenv("PATH", str(tmp_path))
    run = cli(*arguments, cwd=root)
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "tpu-migrate: ", "git is not installed, or not on PATH")
    assert (root / "a.py").read_text() == GPU


def test_a_quiet_run_with_nothing_to_do_loads_neither_rules_nor_rich(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "x = 1\n"})
    code = (
        "import sys\nfrom migrator.cli import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n"
        "assert not {'rich', 'migrator.rules', 'libcst'} & sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-c", code, "a.py", *TO, "--check", "-q"], cwd=tmp_path, check=True
    )


# ---- configuration -------------------------------------------------------------------------------


def configured(root: Path, table: str) -> CompletedProcess[bytes]:
    write_tree(root, {"pyproject.toml": f"[tool.tpu-migrate]\n{table}\n", "p/a.py": GPU + STREAM})
    return cli("p", "--check", cwd=root)


def test_configuration_is_used_and_the_command_line_wins(tmp_path: Path) -> None:
    assert "a.py" in out(configured(tmp_path, 'target = "torch_xla"'))
    text = 'target = "torch_xla"\nselect = ["CUD"]\nexclude = ["gen*"]\njobs = 1\nunsafe = true\n'
    write_tree(tmp_path, {"p/generated.py": GPU})
    assert "1 file scanned, 0 would change" in out(configured(tmp_path, text))
    diff = cli("p/a.py", "--diff", "--select", "MOV", *TO, cwd=tmp_path)
    assert b'x.to("jax")' in diff.stdout


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("colour = 1", ("unknown key 'colour'", "known: ", "pyproject.toml")),
        ("target = 1", ("target", "string")),
        ('target = "cpu"', ("cpu", "torchax")),
        ('select = "MOV"', ("select", "list of strings")),
        ("select = [1]", ("select", "list of strings")),
        ("select = 1", ("select", "list of strings")),
        ("exclude = true", ("exclude", "list of strings")),
        ('select = ["XYZ"]', ("XYZ",)),
        ('unsafe = "yes"', ("unsafe", "true or false")),
        ("jobs = 1.5", ("jobs", "whole number")),
        ("jobs = true", ("jobs", "whole number")),
        ("jobs = -1", ("jobs",)),
        ('precision = "low"', ("precision", "one of")),
        ("x = [", ("not valid TOML", "pyproject.toml")),
    ],
)
def test_wrong_configuration_is_one_line(
    tmp_path: Path, table: str, words: tuple[str, ...]
) -> None:
    write_tree(tmp_path, {"pyproject.toml": f"[tool.tpu-migrate]\n{table}\n", "a.py": GPU})
    run = cli("a.py", "--check", *(() if "target" in table else TO), cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, *words)


def test_a_table_that_is_none(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": "[tool]\ntpu-migrate = 3\n", "a.py": GPU})
    one_line(cli(".", *TO, cwd=tmp_path).stderr, "[tool.tpu-migrate]", "not a table")


def test_configuration_outside_of_the_project_is_not_read(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": "[tool.tpu-migrate]\ncolour = 1\n"})
    root = committed(tmp_path / "p", {"a.py": GPU, "pyproject.toml": "[project]\nname = 'p'\n"})
    assert cli(".", *TO, "--check", cwd=root).returncode == 1


# ---- bad input -----------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Path]:
    """A project with one of everything that goes wrong, between files that are fine."""
    root = committed(
        tmp_path,
        {
            "a_fine.py": GPU,
            "syntax.py": "x = = 'cuda'\n",
            "coding.py": b"s = 'cuda \xff'\n",
            "unknown.py": b"# coding: nonsense\ns = 'cuda'\n",
            "nul.py": b"s = 'cuda'\0\n",
            "binary.py": b"\x7fELF\2\1\1\0\0\0",
            "utf16.py": GPU.encode("utf-16"),
            "cafe.py": b"a = 1\nb = 2\n# caf\xe9\n",
            "generated.py": b"x = 'cuda'\n" * 500_000,
            "deep.py": "x = " + "(" * 3000 + "'cuda'" + ")" * 3000 + "\n",
            "z_fine.py": GPU,
        },
    )
    (root / "folder.py").mkdir()
    (root / "dangling.py").symlink_to("nowhere")
    (root / "self.py").symlink_to("self.py")
    (root / "loop").mkdir()
    (root / "loop" / "up").symlink_to("..")
    (root / "loop" / "b.py").write_text(GPU)
    git(root, "add", "loop/b.py")
    yield root


ERRORS = {
    "syntax.py": "ERR001", "coding.py": "ERR001", "unknown.py": "ERR001", "nul.py": "ERR001",
    "binary.py": "ERR001", "utf16.py": "ERR001", "cafe.py": "ERR002",
    "generated.py": "ERR004", "deep.py": "ERR001", "dangling.py": "ERR005", "self.py": "ERR005",
}  # fmt: skip


EVERYTHING = "[tool.tpu-migrate]\ntarget = 'torch_xla'\nexclude = ['*']\n"


def test_a_configuration_that_excludes_everything_is_said(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": EVERYTHING, "a.py": GPU})
    run = cli(".", "--check", cwd=tmp_path)
    assert run.returncode == 0
    assert "note  all that is there is excluded, by *" in out(run)


def test_a_trusted_configuration_is_the_only_one(tmp_path: Path) -> None:
    write_tree(tmp_path, {"p/pyproject.toml": EVERYTHING, "p/a.py": GPU, "p/b/c.py": GPU})
    write_tree(tmp_path, {"own.toml": "[tool.tpu-migrate]\ntarget = 'torchax'\nexclude = ['b']\n"})
    run = cli("p", "--diff", "--config", "own.toml", cwd=tmp_path)
    assert out(run).count('+    return x.to("jax")') == 1
    run = cli("p", "--diff", "--isolated", "--target", "torchax", cwd=tmp_path)
    assert out(run).count('+    return x.to("jax")') == 2
    write_tree(tmp_path, {"p/pyproject.toml": "no TOML"})
    assert cli("p", "--check", "--isolated", *TO, cwd=tmp_path).returncode == 1
    assert cli("p", "--check", "--config", "own.toml", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "none.toml"), "none.toml: can not be read: No such file or directory"),
        (("--config", "a.py"), "a.py: not valid TOML"),
        (("--config", "b.toml"), "b.toml: [tool.tpu-migrate] has an unknown key 'colour'"),
        (("--config", "b.toml", "--isolated"), "choose one of --config and --isolated"),
    ],
)
def test_a_configuration_that_can_not_be_taken_is_one_line(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    write_tree(tmp_path, {"a.py": GPU, "b.toml": "[tool.tpu-migrate]\ncolour = 1\n"})
    run = cli(".", *TO, *options, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.decode().startswith(f"tpu-migrate: {words}")
    assert run.stderr.count(b"\n") == 1


def test_one_bad_file_stops_nothing(bad: Path) -> None:
    before = read_tree(bad)
    run = cli(".", *TO, cwd=bad)
    assert run.returncode == 2
    text = out(run) + run.stderr.decode()
    assert "Traceback" not in text
    for name, code in ERRORS.items():
        lines = [line for line in text.splitlines() if line.startswith(f"{name}:")]
        assert len(lines) == 1 and code in lines[0], (name, lines)
    new = {"a_fine.py", "z_fine.py", "loop/b.py"}
    assert read_tree(bad) == before | dict.fromkeys(new, TPU.encode())


def test_errors_in_json(bad: Path) -> None:
    run = cli(".", *TO, "--check", "--format", "json", cwd=bad)
    document = json.loads(run.stdout)
    found = {
        file["path"]: d["code"]
        for file in document["files"]
        for d in file["diagnostics"]
        if d["severity"] == "error"
    }
    assert {Path(path).name: code for path, code in found.items()} == ERRORS


@pytest.mark.parametrize("name", ["syntax.py", "dangling.py", "self.py", "nul.py"])
def test_a_bad_file_named_alone(bad: Path, name: str) -> None:
    run = cli(name, *TO, cwd=bad)
    assert run.returncode == 2
    assert name in (out(run) + run.stderr.decode())
    assert "Traceback" not in run.stderr.decode()


def test_a_copy_with_bad_files_is_whole(bad: Path) -> None:
    run = cli(".", *TO, "-o", "../copy_of_bad", cwd=bad)
    assert run.returncode == 2
    copied = read_tree(bad.parent / "copy_of_bad")
    assert copied == read_tree(bad) | {
        name: TPU.encode() for name in ("a_fine.py", "z_fine.py", "loop/b.py")
    }


def test_as_a_process_of_its_own(bad: Path) -> None:
    run = shell("tpu-migrate . --target torchax --check", bad)
    assert run.returncode == 2
    assert b"syntax.py:1:" in run.stdout and b"Traceback" not in run.stdout + run.stderr
    fine = shell("tpu-migrate a_fine.py --target torchax --diff | git apply -", bad)
    assert fine.returncode == 0
    assert (bad / "a_fine.py").read_text() == TPU


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"f{i}.py": SCRIPT for i in range(50)})
    run = shell("tpu-migrate . --target torchax --diff 2>&1 | head -n 1", tmp_path)
    assert run.stdout.startswith(b"--- a/f0.py") and b"Traceback" not in run.stdout + run.stderr
