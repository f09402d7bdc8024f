"""Comments and layout stay; odd places."""

from __future__ import annotations

import ast

import pytest
from helpers import TARGETS, assert_sound, comments, constructs, errors, migrated, outcomes, run

from tests.engine.snippets import exact


def test_comments_inside_replaced_code_move_above_it() -> None:
    exact(
        """\
        import torch
        device = torch.device(
            "cuda"  # fast
            if torch.cuda.is_available()
            else "cpu"  # slow
        )
        """,
        """\
        import torch
        # fast
        # slow
        device = torch.device("jax")
        """,
    )


def test_a_comment_above_an_argument_stays_there_when_the_one_before_goes() -> None:
    exact(
        """\
        import torch
        loader = torch.utils.data.DataLoader(
            dataset.cuda(),
            pin_memory=True,
            # another part for each rank
            sampler=sampler,  # shuffles
        )
        loader = torch.utils.data.DataLoader(
            dataset, pin_memory=True,
            # another part for each rank
            sampler=sampler)
        """,
        """\
        import torch
        loader = torch.utils.data.DataLoader(
            dataset.to("jax"),
            # another part for each rank
            sampler=sampler,  # shuffles
        )
        loader = torch.utils.data.DataLoader(
            dataset,
            # another part for each rank
            sampler=sampler)
        """,
    )


def test_comments_above_deleted_statements_stay() -> None:
    exact(
        """\
        import torch

        # one
        torch.cuda.empty_cache()  # two

        # three
        x = 1
        """,
        """\
        import torch

        # one
        # two

        # three
        x = 1
        """,
    )


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nif gpu:\n    # note\n    torch.cuda.empty_cache()\n",
        "import torch\nif gpu:\n    # note\n    torch.cuda.empty_cache()\ny = 1\n",
        "import torch\nif gpu:\n    torch.cuda.empty_cache()\n    # note\ny = 1\n",
        "import torch\nif gpu:\n    if gpu:\n        # note\n        torch.cuda.empty_cache()\n",
        "import torch\nwith torch.cuda.device(0):  # note\n    x = 1\n",
        "import torch\nwith torch.cuda.device(0):\n    # note\n    torch.cuda.empty_cache()\n",
        "import torch\nwith torch.cuda.device(0):\n    x = 1\n    # note\n",
        "import torch\ndef f():\n    # note\n    torch.cuda.empty_cache()\n",
        "import torch\ndef f():\n    torch.cuda.empty_cache()\n    # note\n",
        "# note\nimport torch.backends.cudnn as cudnn\ncudnn.benchmark = True\n",
        "import torch.backends.cudnn as cudnn\n# note\ncudnn.benchmark = True\n",
        "import torch\n@torch.compile\n# note\ndef f(x): pass\n",
    ],
)
def test_a_note_survives(source: str) -> None:
    assert migrated(source).count("# note") == 1


def test_blocks_that_lose_all_statements() -> None:
    exact(
        """\
        import torch
        def f():
            torch.cuda.empty_cache()
        try:
            torch.cuda.empty_cache()
        except RuntimeError:
            torch.cuda.empty_cache()
        for i in r:
            torch.cuda.empty_cache()
        if a:
            b = 1
        else:
            torch.cuda.empty_cache()
        if a:
            b = 1
        else:  # a note
            torch.cuda.empty_cache()
        if a > 1:
            torch.cuda.empty_cache()
        else:
            torch.cuda.ipc_collect()
        if run():
            torch.cuda.empty_cache()
        """,
        """\
        import torch
        def f():
            pass
        for i in r:
            pass
        if a:
            b = 1
        if a:
            b = 1
        else:  # a note
            pass
        if run():
            pass
        """,
    )


def test_a_with_that_goes_leaves_its_body() -> None:
    exact(
        """\
        import torch
        def f(x):
            with torch.cuda.device(0), torch.no_grad():
                a = x.cuda()
            with torch.cuda.device(x.device):
                b = (1,
                  2)
                if b:
                    c = 1

            return a
        """,
        """\
        import torch
        def f(x):
            with torch.no_grad():
                a = x.to("jax")
            b = (1,
              2)
            if b:
                c = 1

            return a
        """,
    )


def test_strings_of_several_lines_keep_their_text_when_a_with_goes() -> None:
    text = "'''\n          a\n    b\n'''"
    source = f"import torch\nwith torch.cuda.device(0):\n    b = {text}\n"
    assert migrated(source) == f"import torch\nb = {text}\n"


def test_quotes_follow_the_code_around() -> None:
    exact("a = 'x'\ny = y.cuda()\n", "a = 'x'\ny = y.to('jax')\n")
    exact('a = "x"\ny = y.cuda()\n', 'a = "x"\ny = y.to("jax")\n')
    exact("f\"{x.cuda()} {'a'}\"\n", "f\"{x.to('jax')} {'a'}\"\n")


def test_columns_count_characters() -> None:
    source = "é = 'ü✓'; x = x.cuda()\n"
    found = constructs(run(source))[0]
    assert (found.range.line, found.range.column) == (1, source.index("cuda") + 1)


# ---- odd places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "torch.Tensor.cuda = patched",
        "torch.nn.Module.cuda = lambda self, device=None: self",
        "torch.cuda.is_available = lambda: False",
        "torch.cuda.synchronize = noop",
        "torch.cuda.empty_cache = noop",
        "torch.cuda.manual_seed, x = f, 1",
        "torch.compile = lambda f: f",
        "torch.inference_mode = torch.no_grad",
        "del torch.cuda.seed",
        "for torch.cuda.seed in a: pass",
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_monkeypatching_is_reported_and_stays(statement: str, target: str) -> None:
    source = f"import torch\n{statement}\n"
    result = run(source, target)
    assert not errors(result)
    assert result.source.decode() == source
    assert [outcome for _, outcome, _ in outcomes(result)] == ["reported"]


PLACES_OF_EXPRESSIONS = [
    ("n = torch.cuda.current_device().bit_length()", "n = (0).bit_length()"),
    ("f = torch.Tensor.cuda if a else b", 'f = (lambda x: x.to("jax")) if a else b'),
    ("f = torch.Tensor.cuda or b", 'f = (lambda x: x.to("jax")) or b'),
    ("y = {1: map(torch.Tensor.cuda, x)}", 'y = {1: map(lambda x: x.to("jax"), x)}'),
    ("y = x.is_cuda == z", 'y = (x.device.type == "jax") == z'),
    ("y = -x.is_cuda", 'y = -(x.device.type == "jax")'),
    ("y = not x.is_cuda", 'y = not x.device.type == "jax"'),
    ("y = (a + b).is_cuda", 'y = (a + b).device.type == "jax"'),
    ("y = f(x).is_cuda, 1", 'y = (f(x).device.type == "jax"), 1'),
    ("y = x.is_cuda | z", 'y = (x.device.type == "jax") | z'),
    ("y = (a or b).pin_memory()", "y = (a or b)"),
    ("y = (a or b).cuda()", 'y = (a or b).to("jax")'),
    ("y = (await x).cuda()", 'y = (await x).to("jax")'),
    ("y = x.pin_memory().shape", "y = x.shape"),
    ("y = (a + b).pin_memory().shape", "y = (a + b).shape"),
    ("y = (a + b).type(torch.cuda.LongTensor)", 'y = (a + b).to("jax", torch.int64)'),
    ("y = torch.compile(lambda x: x)(z)", "y = (lambda x: x)(z)"),
    ("y = torch.compile(a or b).c", "y = (a or b).c"),
]


@pytest.mark.parametrize(("before", "after"), PLACES_OF_EXPRESSIONS)
def test_brackets_keep_the_meaning(before: str, after: str) -> None:
    text = migrated(f"import torch\n{before}\n")
    assert ast.dump(ast.parse(text.splitlines()[-1])) == ast.dump(ast.parse(after))


@pytest.mark.parametrize("expression", ["x.is_cuda()", "torch.Tensor.cuda.__name__"])
def test_what_makes_no_sense_is_left(expression: str) -> None:
    source = f"import torch\ny = {expression}\n"
    result = run(source)
    assert_sound(result, "torchax")
    assert result.source.decode() == source and outcomes(result)[0][1] == "reported"


@pytest.mark.parametrize(
    "statement",
    [
        "torch.cuda.set_device(init_distributed())",
        "y = x.cuda(next(gpus))",
        "torch.backends.cudnn.benchmark = parse_args().benchmark",
        "x = x.to(device=next(gpus)) if torch.cuda.is_available() else 'cpu'",
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_calls_of_the_user_are_not_thrown_away(statement: str, target: str) -> None:
    def calls(text: str) -> list[str]:
        own = ("init_distributed", "next", "parse_args")
        nodes = [n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        return [n.id for n in nodes if isinstance(n, ast.Name) and n.id in own]

    source = f"import torch\n{statement}\n"
    assert calls(migrated(source, target)) == calls(source)


@pytest.mark.parametrize(
    "index",
    ["rank", "int(os.environ['LOCAL_RANK'])", "args.gpu", "0", "r % torch.cuda.device_count()"],
)
def test_a_device_that_only_is_looked_up_goes(index: str) -> None:
    assert migrated(f"import torch\ntorch.cuda.set_device({index})\n") == "import torch\n"


FROM_IMPORTS = [
    "from torch import autocast\nwith autocast('cuda'):\n    f()\n",
    "from torch.cuda.amp import autocast, GradScaler\nwith autocast():\n    s = GradScaler()\n",
    "from torch import device\nd = device('cuda')\n",
    "from torch import device, cuda\nd = device('cuda' if cuda.is_available() else 'cpu')\n",
    "from torch import inference_mode\n@inference_mode()\ndef f(): pass\n",
    "import torch.nn as nn\ny = x.type('torch.cuda.FloatTensor')\n",
    "from torch.cuda import FloatTensor\ny = x.type(FloatTensor)\n",
    "from torch.accelerator import current_accelerator as now\nd = now()\n",
    "from torch import save\nsave(m.cuda(), p)\n",
    "def f():\n    import torch\n    with torch.cuda.amp.autocast(): torch.save(m.cuda(), p)\n",
    "def f():\n    from torch.cuda import amp\n    return amp.GradScaler()\n",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", FROM_IMPORTS)
def test_new_code_only_uses_names_that_are_imported(source: str, target: str) -> None:
    tree = ast.parse(migrated(source, target))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    bound = {a.asname or a.name.partition(".")[0] for n in imports for a in n.names}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert used & {"torch", "tpu_runtime", "torch_xla", "jax", "xm", "torchax"} <= bound


# ---- comments and pages --------------------------------------------------------------------------

GOING = {
    "a statement": "torch.cuda.set_device(\n    # one\n    0,  # two\n)  # three\n",
    "a statement of a line": "x = 1; torch.cuda.empty_cache()  # one\n",
    "a block": "if gpu:  # one\n    # two\n    torch.cuda.init()  # three\n    # four\n",
    "two blocks": "if gpu:  # one\n    torch.cuda.init()\nelse:  # two\n    torch.cuda.init()\n",
    "a line of a block": "if gpu: torch.cuda.empty_cache()  # one\n",
    "a whole function": "def f():  # one\n    torch.cuda.empty_cache()  # two\n    # three\n",
    "a decorator": "@first  # one\n# two\n@torch.compile(  # three\n    mode='default',  # four\n)"
    "  # five\n# six\ndef f(x):\n    return x\n",
    "a with": "with torch.cuda.device(0):  # one\n    x = 1  # two\n    # three\n",
    "an import": "from torch.cuda.amp import (  # one\n    # two\n    autocast,  # three\n)  # 4\n"
    "with autocast():\n    x = 1\n",
    "a try": "try:  # one\n    torch.cuda.init()  # two\nexcept OSError:  # three\n    pass\n",
    "a compiled model": "if fast:  # one\n    model = torch.compile(model)  # two\n",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", GOING)
def test_comments_of_what_goes_stay(kind: str, target: str) -> None:
    source = f"import torch\n{GOING[kind]}y = 2\n"
    result = run(source, target)
    assert result.changed
    assert comments(result.source) == comments(source.encode())


def test_comments_for_tools_go_with_their_line() -> None:
    for comment in ("noqa: E501", "type: ignore[attr-defined]", "pragma: no cover", "fmt: skip"):
        text = f"import torch\nx = 1\ntorch.cuda.empty_cache()  # {comment}\n"
        assert run(text).source == b"import torch\nx = 1\n"


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("page", ["\f\n", "\f\n\n", "\n\f\n", "\n\n\f\n\n", "\f# page\n", " \f\n"])
@pytest.mark.parametrize("kind", GOING)
def test_a_page_stays_a_page(kind: str, page: str, target: str) -> None:
    source = f"import torch\n{page}{GOING[kind]}{page}y = torch.ones(2).cuda()\n{page}"
    result = run(source, target, entry=True)
    assert result.source.count(b"\f") == source.count("\f")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x = (CHOICE)", 'x = "jax"'),
        ("x = (\n    CHOICE\n)", 'x = "jax"'),
        ("f(a or (CHOICE), 1)", 'f(a or "jax", 1)'),
        ("x = ((CHOICE))", 'x = (("jax"))'),
        ("if a in(CHOICE):\n    pass", 'if a in("jax"):\n    pass'),
        ("x = (CHOICE)if a else b", 'x = ("jax")if a else b'),
        ('torch.ones(2, device=("cuda"))', 'torch.ones(2, device=("jax"))'),
    ],
)
def test_brackets_go_with_what_needed_them(line: str, after: str) -> None:
    source = "import torch\n" + line.replace(
        "CHOICE", '"cuda" if torch.cuda.is_available() else "cpu"'
    )
    assert migrated(f"{source}\n") == f"import torch\n{after}\n"
