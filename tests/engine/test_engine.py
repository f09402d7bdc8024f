"""The engine: options, suppression, set-up, the training gate, comments and odd input."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from helpers import (
    DEVICE,
    TARGETS,
    assert_sound,
    codes,
    constructs,
    errors,
    migrated,
    outcomes,
    reported,
    run,
)

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


# ---- training ------------------------------------------------------------------------------------


STEPS = {
    "scheduler.step()": False,
    "self.step()": False,
    "obs = env.step(action)": False,
    "prof.step()": False,
    "scaler.update()": False,
    "optimizer.step()": True,
    "opt.step()": True,
    "self.optim_g.step()": True,
    "loss = optimizer.step(closure)": True,
    "scaler.step(optimizer)": True,
    "optimizers['g'].step()": True,
    "thing.zero_grad()\nthing.step()": True,
    "x = torch.optim.SGD(p, 0.1)\nx.step()": True,
}


@pytest.mark.parametrize(("code", "is_step"), STEPS.items())
def test_only_an_optimizers_step_is_a_step(code: str, is_step: bool) -> None:
    source = f"import torch\nloss.backward()\n{code}\n"
    assert ("torch_xla.sync()" in migrated(source, "torch_xla")) == is_step
    assert migrated(source, "torchax") == source


FOUND = {
    "o = make()\nloss.backward()\no.step()": True,
    "def fit(o: torch.optim.Optimizer):\n    o.step()": True,
    "o, s = both()\no.step()": True,
    "o, s = both()\ns.step()": False,
    "for o in model.configure_optimizers():\n    o.step()": True,
    "table = {'a': torch.optim.SGD(p, 0.1)}\nfor k, v in table.items():\n    v.step()": True,
    "held = [torch.optim.SGD(p, 0.1) for p in ps]\nheld[0].step()": True,
    "import transformers\nw = transformers.AdamW(p)\nw.step()": True,
    "class T:\n    def __init__(self, p):\n        self.o = torch.optim.Adam(p)\n"
    "    def go(self):\n        self.o.step()": True,
}
HELPERS = """\
import torch
class M(torch.nn.Module):
    def configure_optimizers(self):
        return [torch.optim.Adam(self.a.parameters()), torch.optim.Adam(self.b.parameters())]
def make():
    return torch.optim.SGD(p, 0.1)
def both():
    o = make()
    return o, torch.optim.lr_scheduler.StepLR(o, 3)
"""


@pytest.mark.parametrize(("code", "is_step"), FOUND.items())
def test_an_optimizer_is_found_where_it_comes_from(code: str, is_step: bool) -> None:
    result = run(f"{HELPERS}{code}\n", "torch_xla")
    assert result.source.decode().count("torch_xla.sync()") == is_step
    assert not reported(result)


def test_where_steps_end() -> None:
    exact(
        """\
        import torch
        for i, (x, y) in enumerate(data):
            loss = f(net(x), y) / n
            loss.backward()
            if (i + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
            print(loss.item())
        for x in data:
            g.backward()
            optimizer_g.step()
            optimizer_d.step()
            total += g.item()
        """,
        """\
        import torch
        import torch_xla
        for i, (x, y) in enumerate(data):
            loss = f(net(x), y) / n
            loss.backward()
            if (i + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
            torch_xla.sync()
            print(loss.item())
        for x in data:
            g.backward()
            optimizer_g.step()
            optimizer_d.step()
            torch_xla.sync()
            total += g.item()
        """,
        "torch_xla",
    )


def test_a_step_of_something_unknown_is_reported_where_it_matters() -> None:
    source = "import torch\nloss.backward()\nthing.step()\n"
    assert outcomes(run(source, "torch_xla")) == [("TRN002", "reported", "thing.step")]
    assert outcomes(run(source, "torchax")) == [("TRN002", "kept", "thing.step")]


def test_a_program_on_the_cpu_gets_no_boundary() -> None:
    source = "import torch\nopt = torch.optim.SGD(p, 0.1)\nloss.backward()\nopt.step()\n"
    assert migrated(source, "torch_xla", entry=True) == source
    assert "torch_xla.sync()" in migrated(source, "torch_xla", entry=False)


ROUNDS = {
    "for x in data:\n    y = model(x)\n    total += y.sum()\n": "end",
    "for x in data:\n    y = net(x)\n    z = y * 2\n    print(z.sum().item())\n": "print",
    "for x in data:\n    y = self.generator(x)\n    if y.sum() > 1:\n        break\n": "end",
    "while x.size(0) < 9:\n    x = torch.cat([x, net(x)])\n": "end",
    "for x in data:\n    with ctx:\n        y = net(x)\n        n += y.item()\n": "n += y",
    "for x in data:\n    y = net(x)\n    y[y < 0] = -float('inf')\n    y = y.float()\n": "end",
    "for x in data:\n    y = self.model.forward(x)\n    if all(y):\n        break\n": "if all(y)",
    "for x in data:\n    print(model(x).sum().item())\n": None,
    "for x in data:\n    y = tokenize(x)\n": None,
    "for block in blocks:\n    x = net.blocks[0](block(x))\n": None,
    "for x in data:\n    y = model(x)\n    y.backward()\n": None,
}


@pytest.mark.parametrize(("loop", "place"), ROUNDS.items())
@pytest.mark.parametrize("off", ["with torch.no_grad():", "@torch.inference_mode()\ndef f(self):"])
def test_where_rounds_without_gradients_end(loop: str, place: str | None, off: str) -> None:
    body = "".join(f"    {line}\n" for line in loop.splitlines())
    source = f"import torch\nx.cuda()\n{off}\n{body}"
    lines = migrated(source, "torch_xla").splitlines()
    assert sum(line.strip() == "torch_xla.sync()" for line in lines) == (place is not None)
    assert "sync" not in migrated(source, "torchax")
    if place == "end":
        assert "sync" in lines[-1]
    elif place is not None:
        at = next(i for i, line in enumerate(lines) if "sync" in line)
        assert place in lines[at + 1]


@pytest.mark.parametrize(
    "code",
    [
        "for x in data:\n    y = model(x)\n",  # with gradients
        "class Net(torch.nn.Module):\n    @torch.no_grad()\n    def forward(self, x):\n"
        "        for i in range(3):\n            x = self.net(x)\n        return x\n",
        "with torch.set_grad_enabled(train):\n    for x in data:\n        y = model(x)\n",
        "with torch.no_grad():\n    y = [model(x) for x in data]\n",
    ],
)
def test_what_is_no_round_without_gradients(code: str) -> None:
    assert "sync" not in migrated(f"import torch\nx.cuda()\n{code}", "torch_xla")


# ---- set-up --------------------------------------------------------------------------------------

SCRIPT = """\
import torch
from net import Net

x = torch.ones(2).cuda()
"""


@pytest.mark.parametrize("target", TARGETS)
def test_set_up_stands_behind_the_imports_of_a_script(target: str) -> None:
    assert migrated(SCRIPT, target, entry=None) == (
        "import torch\nimport tpu_runtime\nfrom net import Net\n\ntpu_runtime.setup()\n\n"
        f'x = torch.ones(2).to("{DEVICE[target]}")\n'
    )


@pytest.mark.parametrize("precision", ["high", "default"])
def test_set_up_with_another_precision(precision: str) -> None:
    text = migrated(SCRIPT, entry=None, precision=precision)
    assert f'tpu_runtime.setup(precision="{precision}")\n' in text


def test_precision_of_the_user_wins_over_the_script() -> None:
    source = (
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\nx = torch.ones(2).cuda()\n"
    )
    text = migrated(source, entry=True, precision="default")
    assert 'setup(precision="default")' in text
    assert "set_matmul_precision" not in text and "allow_tf32" not in text
    assert "set_matmul_precision(True)" in migrated(source, entry=True)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef f(x):\n    return x.cuda()\n",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.cuda()\n",
        "from . import other\nx = f().cuda()\n",
        "import torch\nm = torch.load(p, map_location='cpu')\nprint(m)\n",
    ],
)
def test_libraries_and_scripts_without_a_device_get_no_set_up(source: str) -> None:
    assert "setup" not in migrated(source, entry=None)


PLACES = [
    ("import torch\nif True:\n    x = f().cuda()\n", 1),
    ("import torch\ntorch.manual_seed(0)\nimport os\nx = f().cuda()\n", 1),
    ('"""Doc."""\nimport os\nimport torch\n\nprint(1)\nx = f().cuda()\n', 3),
    ("import torch\ntry:\n    import a\nexcept ImportError:\n    a = None\nx = f().cuda()\n", 5),
]


@pytest.mark.parametrize(("source", "imports"), PLACES)
def test_set_up_stands_above_what_computes(source: str, imports: int) -> None:
    lines = [line for line in migrated(source, entry=True).splitlines() if line]
    place = lines.index("tpu_runtime.setup()")
    assert place == imports + 1  # behind the imports, one of them new
    computing = [n for n, line in enumerate(lines) if ".to(" in line or "manual_seed" in line]
    assert place < min(computing)


def test_set_up_is_not_repeated() -> None:
    once = migrated(SCRIPT, entry=None)
    again = run(once, entry=None)
    assert not again.changed
    assert once.count("setup()") == 1


def test_installed_runtime_brings_no_companion() -> None:
    bundled, installed = run(SCRIPT, entry=None), run(SCRIPT, entry=None, runtime="installed")
    assert bundled.companions == {"tpu_runtime"}
    assert installed.companions == frozenset()
    assert bundled.source == installed.source


def test_a_second_run_still_asks_for_the_companion() -> None:
    once = run(SCRIPT, entry=None)
    touched = once.source + b"y = x.cuda()\n"
    assert run(touched, entry=None).companions == {"tpu_runtime"}


# ---- comments and layout -------------------------------------------------------------------------


def exact(before: str, after: str, target: str = "torchax", unsafe: bool = False) -> None:
    assert migrated(dedent(before), target, unsafe=unsafe) == dedent(after)


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
        try:
            pass
        except RuntimeError:
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
    ("f = {1: torch.Tensor.cuda}", 'f = {1: lambda x: x.to("jax")}'),
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


# ---- compiled steps ------------------------------------------------------------------------------

STEP = """\
import torch
criterion = torch.nn.CrossEntropyLoss()
def train(net, opt, data, device):
    for i, (x, y) in enumerate(data):
        x = x.cuda()
        {}
        print(loss.item())
"""
COMPUTED = {
    "loss = criterion(net(x), y)": True,
    "with torch.autocast('cuda'):\n            loss = criterion(net(x), y)": True,
    "out = net(x)\n        loss = criterion(out, y) + 0.1 * out.square().mean()": True,
    "loss = 0\n        for k in range(3):\n            loss = loss + net(x).mean()": True,
    "loss = torch.nn.functional.mse_loss(net(x), y)\n        total = loss * 2": True,
    "loss = criterion(net(x), y)\n        print('here')": True,
    "loss = criterion(net(x), y)\n        meter.update(loss.item())": True,
    "loss = criterion(net(x), y)\n        meter.refresh(loss)": False,
    "loss = criterion(net(x), y) * i": False,
    "loss = criterion(net(x), y)\n        seen = loss.item()": True,
    "loss = criterion(net(x), y)\n        seen = net(x).mean().item()": True,
    "loss = criterion(net(x), y)\n        if loss.item() > 9:\n            continue": False,
    "loss = criterion(net(x), y)\n        print(net.scale.item())": False,
    "loss = criterion(net(x), y)\n        print(opt.param_groups[0]['lr'])": False,
    "self.loss = loss = criterion(net(x), y)": False,
    "out = net(x)\n        print(out)\n        loss = criterion(out, y)": True,
    "x.mul_(2)\n        print(x)\n        loss = criterion(net(x), y)\n        x.mul_(3)": True,
    "loss = criterion(net(x), y)\n        n = loss.item()\n        loss = loss / n": False,
    "loss = save_model(net(x))": False,
    "loss = compute(net(x))": False,
    "loss = criterion(net(x + torch.rand(3)), y)": False,
    "losses['a'] = loss = criterion(net(x), y)": False,
}


@pytest.mark.parametrize(("code", "moves"), COMPUTED.items())
def test_a_step_is_moved_if_it_is_nothing_but_computation(code: str, moves: bool) -> None:
    body = f"opt.zero_grad()\n        {code}\n        loss.backward()\n        opt.step()"
    source = STEP.format(body)
    result = migrated(source, "torchax")
    assert ("@tpu_runtime.train_step" in result) == moves
    if not moves:
        assert result.count("opt.step()") == 1
        assert result.index("for i,") < result.index("opt.step()")


@pytest.mark.parametrize(
    "definition",
    [
        "def criterion(a, b):\n    print(a)\n    return a\n",
        "def criterion(a, b):\n    return log(a)\n",
        "from losses import criterion\n",
        "def criterion(a, b):\n    state['n'] = 1\n    return a\n",
    ],
)
def test_a_function_that_may_do_more_stays_in_the_loop(definition: str) -> None:
    source = STEP.format("loss = criterion(net(x), y)\n        loss.backward()\n        opt.step()")
    source = source.replace("criterion = torch.nn.CrossEntropyLoss()\n", definition)
    assert "train_step" not in migrated(source, "torchax")


def test_what_goes_in_and_what_comes_out() -> None:
    exact(
        """\
        import torch
        criterion = torch.nn.CrossEntropyLoss()


        def train(self, loader, warm):
            self.net.train()
            for epoch in range(9):
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()

                    # forward
                    masks, out = self.net(x, warm)
                    loss = criterion(out, y)
                    for mask in masks:
                        y = self.down(y)
                        loss = loss + criterion(mask, y)  # each scale

                    self.optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                    self.optimizer.step()
                    self.scheduler.step()
                    total += loss.item() * len(x)
                out = self.net(x, warm)
                print(out)
        """,
        """\
        import torch
        import tpu_runtime
        criterion = torch.nn.CrossEntropyLoss()


        def train(self, loader, warm):
            self.net.train()

            @tpu_runtime.train_step
            def step(x, y):
                # forward
                masks, out = self.net(x, warm)
                loss = criterion(out, y)
                for mask in masks:
                    y = self.down(y)
                    loss = loss + criterion(mask, y)  # each scale

                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()
                return loss

            for epoch in range(9):
                for x, y in loader:
                    x, y = x.to("jax"), y.to("jax")

                    loss = step(x, y)
                    self.scheduler.step()
                    total += loss.item() * len(x)
                out = self.net(x, warm)
                print(out)
        """,
    )


def in_loop(body: str) -> str:
    lines = [
        "import torch",
        "x.cuda()",
        "for x, y in data:",
        *("    " + s for s in body.split("\n")),
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "body",
    [
        "loss = f(z)\nloss.backward()\nopt.step()",
        "opt.step(closure)",
        "self.loss.backward()\nopt.step()",
        "h = net(x)\nreport(h)\nloss = criterion(h, y)\nloss.backward()\nopt.step()",
        "loss = loss + net(x).sum()\nloss.backward()\nopt.step()",
        "losses.append(criterion(net(x), y))\nsum(losses).backward()\nopt.step()",
        "loss = criterion(net(x), y)\nif n:\n    aux = loss * 2\nloss.backward()\nopt.step()\n"
        "print(aux)",
        "loss = criterion(net(x), y) + bias\nloss.backward()\nopt.step()\nbias = 0.5",
        # the second backward pass goes through what the first step made
        "fake = net(x)\na = criterion(fake, y)\na.backward(retain_graph=True)\nopt_a.step()\n"
        "report(fake)\nb = other(fake)\nb.backward()\nopt_b.step()",
    ],
)  # fmt: skip
def test_a_step_that_can_not_be_shown_to_be_complete_stays(body: str) -> None:
    assert "train_step" not in migrated(in_loop(body), "torchax")


def test_two_optimizers_two_steps() -> None:
    exact(
        """\
        import numpy as np
        import torch
        for i, real in enumerate(data):
            real = real.cuda()
            optimizer_G.zero_grad()
            z = torch.Tensor(np.random.normal(0, 1, (8, 3))).cuda()
            # generator
            fake = generator(z)
            g_loss = criterion(discriminator(fake), ones)
            g_loss.backward()
            optimizer_G.step()

            optimizer_D.zero_grad()
            d_loss = loss(discriminator(real), ones) + loss(discriminator(fake.detach()), zeros)
            d_loss.backward()
            optimizer_D.step()
            print(g_loss.item(), d_loss.item())
        """,
        """\
        import numpy as np
        import torch
        import tpu_runtime


        @tpu_runtime.train_step
        def step_G(z):
            # generator
            fake = generator(z)
            g_loss = criterion(discriminator(fake), ones)
            g_loss.backward()
            optimizer_G.step()
            return fake, g_loss


        @tpu_runtime.train_step
        def step_D(real, fake):
            optimizer_D.zero_grad()
            d_loss = loss(discriminator(real), ones) + loss(discriminator(fake.detach()), zeros)
            d_loss.backward()
            optimizer_D.step()
            return d_loss


        for i, real in enumerate(data):
            real = real.to("jax")
            optimizer_G.zero_grad()
            z = torch.Tensor(np.random.normal(0, 1, (8, 3))).to("jax")
            fake, g_loss = step_G(z)

            d_loss = step_D(real, fake)
            print(g_loss.item(), d_loss.item())
        """,
    )


def test_steps_that_share_a_graph_move_together_and_values_are_read_behind() -> None:
    exact(
        """\
        import torch
        for data in loader:
            netD.zero_grad()
            real = data[0].cuda()
            out = netD(real)
            loss = criterion(out, one)
            loss.backward()
            D_x = out.mean().item()
            fake = netG(noise)
            criterion(netD(fake.detach()), zero).backward()
            optimizerD.step()
            netG.zero_grad()
            out = netD(fake)
            criterion(out, one).backward()
            D_G = out.mean().item()
            optimizerG.step()
            print(D_x, D_G)
        """,
        """\
        import torch
        import tpu_runtime


        @tpu_runtime.train_step
        def step(real):
            netD.zero_grad()
            out = netD(real)
            loss = criterion(out, one)
            loss.backward()
            D_x = out.mean()
            fake = netG(noise)
            criterion(netD(fake.detach()), zero).backward()
            optimizerD.step()
            netG.zero_grad()
            out = netD(fake)
            criterion(out, one).backward()
            optimizerG.step()
            return out, D_x


        for data in loader:
            real = data[0].to("jax")
            out, D_x = step(real)
            D_x = D_x.item()
            D_G = out.mean().item()
            print(D_x, D_G)
        """,
    )


def test_accumulation_a_running_average_and_states() -> None:
    exact(
        """\
        import torch
        def train(model, ema, optimizer, loader, hidden, n):
            for i, (x, y) in enumerate(loader):
                hidden = hidden.detach()
                x = x.cuda()
                out, hidden = model(x, hidden)
                loss = criterion(out, y) / n
                loss.backward()
                if (i + 1) % n == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                with torch.no_grad():
                    for a, b in zip(ema.parameters(), model.parameters()):
                        a.mul_(0.9).add_(b, alpha=0.1)
                total += loss.item()
        """,
        """\
        import torch
        import tpu_runtime
        def train(model, ema, optimizer, loader, hidden, n):
            @tpu_runtime.train_step
            def step(x, hidden, y, update):
                out, hidden = model(x, hidden)
                loss = criterion(out, y) / n
                loss.backward()
                if update:
                    optimizer.step()
                    optimizer.zero_grad()
                with torch.no_grad():
                    for a, b in zip(ema.parameters(), model.parameters()):
                        a.mul_(0.9).add_(b, alpha=0.1)
                return hidden, loss

            for i, (x, y) in enumerate(loader):
                hidden = hidden.detach()
                x = x.to("jax")
                hidden, loss = step(x, hidden, y, update=(i + 1) % n == 0)
                total += loss.item()
        """,
    )


def test_a_trainer() -> None:
    exact(
        """\
        import torch
        class Trainer:
            def run(self):
                for x, y in self.loader:
                    x = x.cuda()
                    out, self.loss = self.model(x, y)
                    self.optimizer.zero_grad()
                    self.loss.backward()
                    self.optimizer.step()
                    self.callbacks("end")
                    self.train_batch(x, y)

            def train_batch(self, x, y):
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                return loss

            def update(self, batch):
                x = batch["x"].cuda()
                loss = self.criterion(self.model(x), batch["y"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                return loss.item()
        """,
        """\
        import torch
        import tpu_runtime
        class Trainer:
            def run(self):
                @tpu_runtime.train_step
                def step(x, y):
                    out, loss = self.model(x, y)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    return loss

                for x, y in self.loader:
                    x = x.to("jax")
                    self.loss = step(x, y)
                    self.callbacks("end")
                    self.train_batch(x, y)

            @tpu_runtime.train_step
            def train_batch(self, x, y):
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                return loss

            def update(self, batch):
                x = batch["x"].to("jax")

                @tpu_runtime.train_step
                def step(x, batch):
                    loss = self.criterion(self.model(x), batch["y"])
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    return loss

                loss = step(x, batch)
                return loss.item()
        """,
    )


def test_a_closure_is_compiled_as_it_stands() -> None:
    exact(
        """\
        import torch
        opt = torch.optim.LBFGS(net.cuda().parameters())
        for x, y in data:
            def closure():
                opt.zero_grad()
                loss = criterion(net(x), y)
                loss.backward()
                return loss
            opt.step(closure)
        """,
        """\
        import torch
        import tpu_runtime
        opt = torch.optim.LBFGS(net.to("jax").parameters())
        for x, y in data:
            @tpu_runtime.train_step
            def closure():
                opt.zero_grad()
                loss = criterion(net(x), y)
                loss.backward()
                return loss
            opt.step(closure)
        """,
    )


def test_a_step_that_stays_slow_is_said_so() -> None:
    source = "import torch\nfor x in data:\n    h = net(x.cuda())\n    report(h)\n"
    source += "    loss = h.sum()\n    loss.backward()\n    opt.step()\n"
    advice = [d for d in run(source, "torchax").diagnostics if d.severity is Severity.ADVICE]
    assert [d.code for d in advice] == ["TRN005"]
    assert "line 4 calls report()" in advice[0].message


def test_an_agent_of_the_project_and_what_is_read_inside_of_a_block() -> None:
    exact(
        """\
        import numpy as np
        import torch
        class Agent(torch.nn.Module):
            def get_action_and_value(self, x):
                probs = torch.distributions.Categorical(logits=self.actor(x))
                return probs.log_prob(probs.sample()), probs.entropy(), self.critic(x)
        agent = Agent().to("cuda")
        for start in range(0, size, batch):
            end = start + batch
            rows = order[start:end]
            chance, entropy, value = agent.get_action_and_value(states[rows])
            ratio = chance.exp()
            with torch.no_grad():
                far = (ratio - 1).abs()
                clipped += [far.mean().item()]  # how often
            loss = -(gains[rows] * ratio).mean() - 0.1 * entropy.mean() + value.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        """\
        import numpy as np
        import torch
        import tpu_runtime
        class Agent(torch.nn.Module):
            def get_action_and_value(self, x):
                probs = torch.distributions.Categorical(logits=self.actor(x))
                return probs.log_prob(probs.sample()), probs.entropy(), self.critic(x)
        agent = Agent().to("jax")


        @tpu_runtime.train_step
        def step(rows):
            chance, entropy, value = agent.get_action_and_value(states[rows])
            ratio = chance.exp()
            with torch.no_grad():
                far = (ratio - 1).abs()
            loss = -(gains[rows] * ratio).mean() - 0.1 * entropy.mean() + value.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return far


        for start in range(0, size, batch):
            end = start + batch
            rows = order[start:end]
            far = step(rows)
            clipped += [far.mean().item()]  # how often
        """,
    )


def test_a_weight_is_read_before_it_changes() -> None:
    body = "w = net.fc.weight\nloss = criterion(net(x), y)\nprint(w.norm().item())\n"
    body += "loss.backward()\nopt.step()"
    assert "train_step" not in migrated(in_loop(body), "torchax")


def test_accumulation_with_more_behind_the_step() -> None:
    exact(
        """\
        import torch
        def train(args, model, loader, optimizer, scheduler):
            for i, batch in enumerate(loader):
                batch = tuple(t.cuda() for t in batch)
                loss = model(*batch)[0] / args.n
                loss.backward()
                total += loss.item()
                if (i + 1) % args.n == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()  # the rate
                    model.zero_grad()
                    done += 1
        """,
        """\
        import torch
        import tpu_runtime
        def train(args, model, loader, optimizer, scheduler):
            @tpu_runtime.train_step
            def step(batch, update):
                loss = model(*batch)[0] / args.n
                loss.backward()
                if update:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                return loss

            for i, batch in enumerate(loader):
                batch = tuple(t.to("jax") for t in batch)
                loss = step(batch, update=(i + 1) % args.n == 0)
                total += loss.item()
                if (i + 1) % args.n == 0:
                    scheduler.step()  # the rate
                    model.zero_grad()
                    done += 1
        """,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(\n    a, pin_memory=True\n)", "(\n    a\n)"),
        ("(\n    a,\n    pin_memory=True\n)", "(\n    a\n)"),
        ("(\n    a, pin_memory=True,  # c\n)", "(\n    a,  # c\n)"),
        ("(a, pin_memory=True,\n  b=3 )", "(a, b=3 )"),
    ],
)
def test_the_closing_bracket_stays_where_it_was(before: str, after: str) -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\nx.cuda()\n"
    assert migrated(f"{head}l = DataLoader{before}\n").endswith(f"l = DataLoader{after}\n")
    load = "import torch\nx = model.load_state_dict(torch.load("
    assert migrated(f"{load}\n    a\n))\n") == f'{load}\n    a, map_location="cpu"\n))\n'


@pytest.mark.parametrize("options", [{}, {"portable": True}])
@pytest.mark.parametrize("target", TARGETS)
def test_a_device_that_is_named_like_an_index(target: str, options: dict[str, bool]) -> None:
    source = "import torch\ngpu = torch.device('cuda')\nx = y.to(gpu)\n"
    assert migrated(source, target, **options).endswith("x = y.to(gpu)\n")  # also the second time
