"""The engine: options, suppression, odd input, and as a library."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import assert_sound, codes, constructs, errors, migrated, outcomes, run

from migrator import migrate_source
from migrator.config import Config
from migrator.diagnostics import Severity

# ---- selection -----------------------------------------------------------------------------------

MIXED = (
    "import torch\nx = x.cuda()\ntorch.cuda.empty_cache()\ntorch.backends.cudnn.benchmark = True\n"
)


def test_select_and_ignore_by_prefix() -> None:
    assert migrated(MIXED, select=("MOV",)) == MIXED.replace("x.cuda()", 'x.to("jax")')
    assert migrated(MIXED, select=("MOV001",)) == migrated(MIXED, select=("MOV",))
    assert "x.cuda()" in migrated(MIXED, ignore=("MOV",))
    assert "empty_cache" not in migrated(MIXED, ignore=("MOV",))
    assert migrated(MIXED, select=("MOV", "CUD"), ignore=("CUD002",)) == migrated(
        MIXED, select=("MOV",)
    )
    assert migrated(MIXED, select=("XYZ",)) == MIXED


def test_what_is_not_selected_is_reported_and_says_so() -> None:
    result = run(MIXED, select=("MOV",))
    assert outcomes(result) == [
        ("MOV001", "rewritten", "x.cuda"),
        ("CUD002", "reported", "torch.cuda.empty_cache"),
        ("PRE001", "reported", "torch.backends.cudnn.benchmark"),
    ]
    assert [d.message for d in constructs(result)[1:]] == [
        "CUD002 is not selected",
        "PRE001 is not selected",
    ]


def test_unsafe_edits_are_made_on_request_only() -> None:
    source = "import torch\nmodel = model.half()\n"
    result = run(source)
    assert not result.changed
    assert outcomes(result) == [("PRE005", "kept", "model.half")]
    (advice,) = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert advice.message.endswith("(rewritten with --unsafe)")
    assert migrated(source, unsafe=True) == "import torch\nmodel = model.bfloat16()\n"


# ---- suppression ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comment",
    [
        "ignore",
        "ignore[MOV001]",
        "ignore[MOV]",
        "ignore[CUD002, MOV001]",
        "ignore[CUD002,MOV]  why",
    ],
)
def test_line_comment(comment: str) -> None:
    source = f"x = x.cuda()  # tpu-migrate: {comment}\ny = y.cuda()\n"
    result = run(source)
    assert_sound(result, "torchax")
    assert result.source.decode() == source.replace("y.cuda()", 'y.to("jax")')
    assert outcomes(result)[0] == ("MOV001", "kept", "x.cuda")
    assert "comment" in constructs(result)[0].message


def test_line_comment_with_other_codes_does_not_suppress() -> None:
    source = "x = x.cuda()  # tpu-migrate: ignore[CUD002]\n"
    assert migrated(source) == source.replace("x.cuda()", 'x.to("jax")')


def test_line_comment_behind_other_comments_and_in_long_calls() -> None:
    source = "x = f(\n    x.cuda(),  # noqa  # tpu-migrate: ignore\n    y.cuda(),\n)\n"
    assert migrated(source) == source.replace("y.cuda()", 'y.to("jax")')


def test_region() -> None:
    source = dedent("""\
        a = a.cuda()
        # tpu-migrate: off
        b = b.cuda()
        if c:
            c = c.cuda()
        # tpu-migrate: on
        d = d.cuda()
        # tpu-migrate: off
        e = e.cuda()
        """)
    expected = source.replace("a.cuda()", 'a.to("jax")').replace("d.cuda()", 'd.to("jax")')
    assert migrated(source) == expected


@pytest.mark.parametrize("place", [0, 1, 2])
def test_whole_file(place: int) -> None:
    lines = ["import torch\n", "x = x.cuda()\n"]
    lines.insert(place, "# tpu-migrate: ignore-file\n")
    source = "".join(lines)
    result = run(source, entry=True)
    assert result.source.decode() == source
    assert {d.outcome for d in result.diagnostics} == {"kept"}


def test_whole_file_by_code() -> None:
    source = "# tpu-migrate: ignore-file[CUD]\n" + MIXED
    text = migrated(source)
    assert 'x.to("jax")' in text
    assert "torch.cuda.empty_cache()" in text


def test_a_string_is_no_comment() -> None:
    assert '.to("jax")' in migrated('x = x.cuda(); s = "# tpu-migrate: ignore"\n')


@pytest.mark.parametrize(
    ("path", "line", "other"),
    [
        ("run.sh", "python train.py --device cuda", "nvidia-smi"),
        ("requirements.txt", "torch==2.1.0", "torchvision==0.16.0"),
        ("config.yaml", "device: cuda", "gpu_device: cuda"),
    ],
)
def test_comments_of_other_files_count(path: str, line: str, other: str) -> None:
    comment = "# tpu-migrate: "
    for kept in (f"{line}  {comment}ignore\n", f"{comment}off\n{line}\n{comment}on\n"):
        text = run(f"{kept}{other}\n", path=path).source.decode()
        assert text.startswith(kept) and other not in text
    assert f"{line}\n" not in run(f"{line}\n{other}\n", path=path).source.decode()


def test_suppressed_parts_of_a_larger_edit() -> None:
    """The outer edit would take the suppressed line away: then it must not happen."""
    source = dedent("""\
        import torch
        device = torch.device(
            "cuda"  # tpu-migrate: ignore
            if torch.cuda.is_available()
            else "cpu"
        )
        """)
    assert '"cuda"  # tpu-migrate: ignore\n' in migrated(source)


def test_suppressed_set_up() -> None:
    script = "import torch\nx = torch.ones(2).cuda()\n"
    assert "setup()" in migrated(script, entry=True)
    assert "setup()" not in migrated("# tpu-migrate: ignore-file[SET001]\n" + script, entry=True)


# ---- input that is not fine ----------------------------------------------------------------------

BAD = [
    (b"x = = cuda\n", "ERR001"),
    (b"print 'cuda'\n", "ERR001"),
    (b"x = 'cuda'\n\0", "ERR001"),
    (b"# coding: nonsense\nx = 'cuda'\n", "ERR001"),
    (b"x = 'cuda \xff'\n", "ERR001"),
    (b"# -*- coding: ascii -*-\nx = 'cuda \xe9'\n", "ERR002"),
    (b"\xef\xbb\xbf# coding: latin-1\nx = 'cuda'\n", "ERR001"),
    (b"if a:\n\tx = 1\n        y = 'cuda'\n", "ERR001"),
    (b"x = " + b"(" * 500 + b"'cuda'" + b")" * 500, "ERR001"),
    (b"x = " + b"-" * 100_000 + b"'cuda'", "ERR001"),
]


@pytest.mark.parametrize(("source", "code"), BAD)
def test_bad_input_is_one_error_and_stays(source: bytes, code: str) -> None:
    result = run(source)
    assert result.source == source
    assert result.failed
    assert codes(list(result.diagnostics)) in ([code], ["ERR002"])
    assert "\n" not in result.diagnostics[0].message


def test_a_syntax_error_says_where() -> None:
    error = errors(run("import torch\nx.cuda(\ny = = 2\n"))[0]
    assert error.range.line >= 2


def test_deep_nesting_is_no_crash() -> None:
    for source in (
        "x = " + "[" * 90 + "x.cuda()" + "]" * 90 + "\n",
        "x = a" + ".b()" * 400 + ".cuda()\n",
        "x = " + " + ".join(["x.cuda()"] * 400) + "\n",
        "".join("    " * i + "if a:\n" for i in range(60)) + "    " * 60 + "x.cuda()\n",
    ):
        result = run(source)
        assert result.source == source.encode() or ".to(" in result.source.decode()
        assert result.failed or result.changed


def test_a_file_without_any_token_is_not_looked_at() -> None:
    source = b"this is ( not Python\n"
    result = run(source)
    assert result.source is source and not result.diagnostics


def test_empty_files() -> None:
    for source in (b"", b"\n", b"# cuda", b"'cuda'", b"\xef\xbb\xbf"):
        result = run(source, entry=None)
        assert result.source == source and not errors(result)


# ---- as a library --------------------------------------------------------------------------------


def test_migrate_source() -> None:
    result = migrate_source("x = x.cuda()\n", "torch_xla", Config(select=("MOV",)))
    assert b'x = x.to("xla")\n' in result.source
    assert result.changed and not result.failed
