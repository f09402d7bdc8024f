"""The command line: in place, copies, diffs, exit codes, standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from helpers import TARGETS, cli, committed, git, one_line, read_tree, wheel_for, write_tree

from tests.command.scripts import ADVICE, GPU, SCRIPT, STREAM, TO, TPU, out

AS_COPY = ("--runtime", "copy")

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
    assert "2 GPU constructs: 1 rewritten, 1 reported (50% automatic)" in out(run)


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
    assert before.keys() <= copied.keys() and wheel_for("torchax") in copied
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
@pytest.mark.parametrize("runtime", ["wheel", "copy"])
def test_a_diff_can_be_applied(tmp_path: Path, target: str, runtime: str) -> None:
    root = committed(tmp_path / "p", dict(LAYOUTS))
    before = read_tree(root, runtime=True)
    diff = cli(".", "--target", target, "--diff", "--with-runtime", "--runtime", runtime, cwd=root)
    assert diff.returncode == 1
    assert b"\x1b" not in diff.stdout  # plain in a pipe
    assert read_tree(root, runtime=True) == before  # nothing was written
    cli(".", "--target", target, "-o", "../expected", "--runtime", runtime, cwd=root)
    git(root, "apply", "--whitespace=nowarn", "-", stdin=diff.stdout)
    expected = read_tree(tmp_path / "expected", runtime=True)
    assert read_tree(root, runtime=True) == expected
    # companions were new files in the diff
    assert {"wheel": wheel_for(target), "copy": "tpu_runtime/__init__.py"}[runtime] in expected
    again = cli(".", "--target", target, "--diff", "--runtime", runtime, cwd=root)
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
    diff = cli("sub", *TO, "--diff", "--with-runtime", *AS_COPY, cwd=root)
    git(root, "apply", "-", stdin=diff.stdout)
    assert "tpu_runtime.setup()" in (root / "sub" / "main.py").read_text()
    assert (root / "sub" / "tpu_runtime" / "__init__.py").is_file()


def test_a_diff_updates_companions(tmp_path: Path) -> None:
    root = committed(tmp_path, {"main.py": SCRIPT})
    cli(".", *TO, *AS_COPY, cwd=root)
    module = root / "tpu_runtime" / "device.py"
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
    run = cli(".", *TO, "--diff", *AS_COPY, cwd=root)
    assert run.stdout.startswith(b"--- a/a.py\n") and b"tpu_runtime/" not in run.stdout
    whole = cli(".", *TO, "--diff", "--with-runtime", *AS_COPY, cwd=root).stdout
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
