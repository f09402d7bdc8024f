"""What the tests of the engine and of the command line share."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migrator.diagnostics import Diagnostic, Outcome, Severity
from migrator.engine import Result, migrate
from migrator.formats.python import decode
from migrator.options import Options
from migrator.targets import RUNTIME, targets

REPOSITORY = Path(__file__).resolve().parents[1]
TARGETS = tuple(targets())
DEVICE = {name: target.device for name, target in targets().items()}


# ---- the engine ----------------------------------------------------------------------------------


def run(source: str | bytes, target: str = "torchax", **options: Any) -> Result:
    """Migrate a snippet, as a library module unless `entry` says otherwise."""
    data = source.encode() if isinstance(source, str) else source
    return migrate(data, targets()[target], Options(**{"entry": False, **options}))


def migrated(source: str, target: str = "torchax", **options: Any) -> str:
    """The text that a snippet becomes; it has to parse, and a second run must not change it."""
    result = run(source, target, **options)
    assert_sound(result, target, **options)
    return result.source.decode()


def outcomes(result: Result) -> list[tuple[str, str, str]]:
    """(code, outcome, construct) of every construct, in order."""
    return [(d.code, str(d.outcome), d.construct) for d in constructs(result)]


def constructs(result: Result) -> list[Diagnostic]:
    return [d for d in result.diagnostics if d.outcome is not None]


def reported(result: Result) -> list[str]:
    """The source text of what was left for a person."""
    return [d.construct for d in result.diagnostics if d.outcome is Outcome.REPORTED]


def errors(result: Result) -> list[Diagnostic]:
    return [d for d in result.diagnostics if d.severity is Severity.ERROR]


def assert_sound(result: Result, target: str, **options: Any) -> None:
    """What holds for every result: it parses, nothing failed, and a second run changes nothing."""
    assert not errors(result), errors(result)
    ast.parse(result.source)
    again = run(result.source, target, **options)
    assert not errors(again), errors(again)
    assert again.source.decode("latin-1") == result.source.decode("latin-1")


def comments(source: bytes) -> Counter[str]:
    """Every comment of a file, with how often it occurs."""
    text = decode(source).text
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(t.string.strip() for t in tokens if t.type == tokenize.COMMENT)


# ---- projects and the command line ---------------------------------------------------------------


def write_tree(root: Path, files: dict[str, str | bytes]) -> Path:
    """Write files below `root`, by relative path."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read_tree(root: Path, runtime: bool = False) -> dict[str, bytes]:
    """The files below `root`, without version control and (by default) without the runtime."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not {".git", "__pycache__"} & set(path.parts)
        and (runtime or RUNTIME not in path.relative_to(root).parts)
    }


def git(root: Path, *arguments: str, stdin: bytes | None = None) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false")
    run = subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, input=stdin, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode(errors="surrogateescape")


def committed(root: Path, files: dict[str, str | bytes]) -> Path:
    """A git repository that holds `files`."""
    write_tree(root, files)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    return root


def cli(
    *arguments: str | os.PathLike[str], cwd: Path, stdin: bytes | None = None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user does, with its output in pipes."""
    return subprocess.run(
        [sys.executable, "-m", "migrator", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "", "COLUMNS": "200", **env},
    )


def one_line(stderr: bytes, *words: str) -> str:
    """Standard error, which has to be one line that holds all of `words`."""
    lines = stderr.decode().splitlines()
    assert len(lines) == 1, lines
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in {lines[0]!r}"
    return lines[0]


def codes(diagnostics: Sequence[Diagnostic]) -> list[str]:
    return [d.code for d in diagnostics]


# ---- a pool of GPU code --------------------------------------------------------------------------

# Spellings of the imports: what stands at the top, and how the rest writes torch and its parts.
IMPORTS = (
    ("import torch\n", {"torch": "torch", "cuda": "torch.cuda", "amp": "torch.cuda.amp"}),
    ("import torch as th\n", {"torch": "th", "cuda": "th.cuda", "amp": "th.cuda.amp"}),
    (
        "import os\nimport torch\nfrom torch import cuda\n",
        {"torch": "torch", "cuda": "cuda", "amp": "cuda.amp"},
    ),
    (
        "import torch, sys\nimport torch.cuda.amp as amp  # mixed precision\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "amp"},
    ),
    (
        "import torch\nimport torch.nn as nn\nfrom torch.cuda import amp\n\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "amp"},
    ),
    (
        "try:\n    import torch\nexcept ImportError:\n    raise\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "torch.cuda.amp"},
    ),
)

# Expressions; none holds a quote of the other kind, so that they also fit into f-strings.
EXPRESSIONS = (
    "x.cuda()", "x.cuda(0)", "x.cuda(rank)", "x.cuda(device)", "x.cuda(non_blocking=True)",
    "x.cuda(device=0, non_blocking=True)", "net(x.cuda()).cuda()", "x.cuda().half()",
    "x.half()", "x.to('cuda')", "x.to('cuda:1')", "x.to(rank)", "x.to(0)", "x.to(device)",
    "x.to(device='cuda', dtype={torch}.float32)", "[v.cuda() for v in xs]",
    "{{k: v.cuda(non_blocking=True) for k, v in xs.items()}}", "map(lambda v: v.cuda(), xs)",
    "map({torch}.Tensor.cuda, xs)", "(x.cuda() if x.is_cuda else x)", "not x.is_cuda",
    "x.is_cuda == y.is_cuda", "x.get_device()", "{torch}.zeros(2, device=y.get_device())",
    "{torch}.device('cuda')", "{torch}.device('cuda:0')", "{torch}.device('cuda', 1)",
    "{torch}.device('cuda', index=rank)", "{torch}.device(0)", "{torch}.device(type='cuda')",
    "{torch}.device('cuda' if {cuda}.is_available() else 'cpu')",
    "{torch}.device('cuda') if {cuda}.is_available() else {torch}.device('cpu')",
    "'cuda' if {cuda}.is_available() and args.gpu else 'cpu'",
    "{torch}.device('cuda:%d' % rank)", "{torch}.device('cuda:{{}}'.format(rank))",
    "{torch}.device('cuda:' + str(rank))", "{torch}.zeros(2, 3, device='cuda')",
    "{torch}.zeros(2, device=rank)", "{torch}.ones(1).to({torch}.device('cuda'))",
    "{cuda}.is_available()", "not {cuda}.is_available()", "{cuda}.device_count() > 1",
    "{cuda}.current_device()", "rank % {cuda}.device_count()", "{cuda}.memory_allocated() / 2**20",
    "{cuda}.max_memory_allocated(device)", "{cuda}.get_device_name(0)",
    "{cuda}.get_device_properties(0).total_memory", "{cuda}.get_device_capability()",
    "{cuda}.mem_get_info()", "{cuda}.Event(enable_timing=True)", "{cuda}.Stream()",
    "{cuda}.current_stream()", "{cuda}.get_rng_state()", "{cuda}.FloatTensor(2, 3).fill_(0)",
    "{cuda}.FloatTensor", "x.type({cuda}.LongTensor)", "x.type('torch.cuda.FloatTensor')",
    "({cuda}.FloatTensor if gpu else {torch}.FloatTensor)(3)", "{amp}.GradScaler(enabled=gpu)",
    "{amp}.autocast()", "{torch}.load(path)", "{torch}.load(path, map_location='cuda:0')",
    "{torch}.load(path, map_location=lambda s, loc: s.cuda(0))", "{torch}.compile(f)",
    "{torch}.version.cuda", "{torch}.backends.cudnn.version()", "x.pin_memory()",
    "Loader(data, 4, pin_memory=True)", "Loader(data, pin_memory=True, shuffle=True,)",
    "device == 'cuda'", "'cuda' in device", "device.type == 'cuda'", "x.device.type != 'cuda'",
    "impl == 'cuda' and x.device.type == 'cuda'", "device.startswith('cuda')",
    "getattr(args, 'device', 'cuda')", "{{'cuda': 'nccl', 'cpu': 'gloo'}}[device.type]",
    "['cpu'] + ['cuda'] if {cuda}.is_available() else []", "param.type() in ['torch.cuda.HalfTensor']",
    "{torch}.Generator(device='cuda').manual_seed(0)", "{torch}.Generator(device=device)",
    "{torch}.accelerator.current_accelerator()", "{torch}.accelerator.is_available()",
    "'gloo' if not {cuda}.is_available() else 'nccl'", "dict(num_workers=2, pin_memory=True)",
    "partial({torch}.amp.autocast, device_type='cuda')",
)  # fmt: skip

# Statements of one line.
STATEMENTS = (
    "{cuda}.synchronize()", "{cuda}.empty_cache()", "{cuda}.set_device(rank)",
    "{cuda}.manual_seed(0)", "{cuda}.manual_seed_all(seed)", "{cuda}.reset_peak_memory_stats()",
    "{torch}.backends.cudnn.benchmark = True", "{torch}.backends.cudnn.deterministic = gpu",
    "{torch}.backends.cudnn.benchmark, other = True, 3",
    "{torch}.backends.cuda.matmul.allow_tf32 = True", "{torch}.backends.cudnn.allow_tf32 = False",
    "{torch}.set_float32_matmul_precision('high')", "{torch}.set_default_device('cuda')",
    "{torch}.set_default_tensor_type('torch.cuda.FloatTensor')",
    "{torch}.set_default_tensor_type({cuda}.FloatTensor)", "{torch}.set_default_dtype({torch}.bfloat16)",
    "x, y = x.cuda(), y.cuda()", "model = {torch}.compile(model)", "model.half()",
    "{torch}.save(model.state_dict(), path)", "model.load_state_dict({torch}.load(path))",
    "assert {cuda}.is_available(), 'needs CUDA'", "device: str = 'cuda'", "device = dev = 'cuda:0'",
    "DEVICE = 'cuda'", "name = 'cuda'", "self.device = 'cuda'", "config['device'] = 'cuda'",
    "parser.add_argument('--device', default='cuda', help='cuda or cpu')",
    "parser.add_argument('--no-cuda', action='store_true')", "args.cuda = {cuda}.is_available()",
    "kwargs = {{'num_workers': 1, 'pin_memory': True}}", "kwargs['pin_memory'] = True",
    "x.record_stream({cuda}.current_stream())", "del x; {cuda}.empty_cache(); x = None",
    "start.record({cuda}.current_stream())", "{cuda}.current_stream().synchronize()",
    "x = x.cuda(); y = y.cuda()", "{cuda}.empty_cache();", "{cuda}.nvtx.range_push('step')",
    "os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "if {cuda}.is_available(): {cuda}.empty_cache()",
    "if gpu: x = x.cuda()", "for v in xs: v.cuda(); v.half()",
    "with {amp}.autocast(): y = model(x)", "with {cuda}.device(0): y = model(x)",
    "with {cuda}.device(0), {torch}.no_grad(): y = model(x)", "while {cuda}.is_available(): break",
    "import apex", "from flash_attn import flash_attn_func", "return_value = x.cuda()",
    "(x := x.cuda())", "x: 'Tensor' = x.cuda()", "x += x.cuda()", "lines[x.cuda()] = 'cuda'",
    "größe, 名前 = 'ünï ✓', x.cuda()", "print('✓ 名前', x.cuda(), 'cuda')", "s = '日本'; x = x.cuda()",
    "with {torch}.inference_mode(): y = model(x)", "model = {torch}.nn.DataParallel(model)",
    "{torch}.distributed.init_process_group('nccl')", "raise {cuda}.OutOfMemoryError",
)  # fmt: skip

# Statements of several lines, indented by four blanks below their first line.
BLOCKS = (
    "x = x.cuda(\n    0,  # where\n    non_blocking=True,  # how\n)",
    "x = x.cuda(\n    # nothing to say\n)",
    "x = f(\n    x.cuda(),  # the input\n    # the other\n    y.cuda(),\n)",
    "device = {torch}.device(\n    'cuda'  # fast\n    if {cuda}.is_available()\n    else 'cpu'  # slow\n)",
    "self.t = {cuda}.FloatTensor if gpu \\\n    else {torch}.FloatTensor",
    "loader = Loader(\n    data,\n    pin_memory=True,  # faster\n    num_workers=2,\n)",
    "loader = Loader(data,\n                pin_memory=True\n                )",
    "{cuda}.empty_cache(  # tidy\n)",
    "with {amp}.autocast(enabled=gpu):  # half\n    y = model(x)\n    z = y.cuda()  # move",
    "with {torch}.autocast('cuda', dtype={torch}.float16):\n    y = model(x)",
    "with {torch}.autocast(device_type='cuda', dtype={torch}.bfloat16), {torch}.no_grad():\n    y = x",
    "with {cuda}.device(rank):  # here\n    # first\n    x = x.cuda()\n\n    y = x  # last",
    "with {cuda}.device(rank), open(path) as file:\n    y = x",
    "with {cuda}.stream(side):\n    x = x.cuda(non_blocking=True)",
    "with {torch}.device('cuda'):\n    x = {torch}.zeros(2)",
    "if {cuda}.is_available():\n    {cuda}.empty_cache()  # tidy\n    {cuda}.synchronize()",
    "if {cuda}.is_available():\n    {cuda}.empty_cache()",
    "if {cuda}.is_available():\n    device = 'cuda'\nelse:\n    device = 'cpu'",
    "if gpu:\n    # only this\n    {cuda}.set_device(0)\nelse:\n    x = 1",
    "if gpu:\n    x = 1\nelse:\n    {cuda}.empty_cache()",
    "if gpu:\n    x = 1\nelif {cuda}.is_available():\n    {cuda}.empty_cache()",
    "try:\n    x = x.cuda()\nexcept RuntimeError as e:\n    if 'CUDA out of memory. ' in str(e):\n        {cuda}.empty_cache()\n    else:\n        raise",
    "try:\n    {cuda}.empty_cache()\nfinally:\n    {cuda}.synchronize()",
    "for v in xs:\n    {cuda}.empty_cache()\nelse:\n    x = x.cuda()",
    "@{amp}.autocast()\ndef g(x):\n    return x.cuda()",
    "@{torch}.inference_mode()\ndef g(x, device='cuda'):\n    '''cuda'''\n    return x.to(device)",
    "@{torch}.compile\n# fast\n@wraps(f)\ndef g(x, *, dev={torch}.device('cuda')):\n    return x",
    "async def g(x):\n    async with lock:\n        return (await x).cuda()",
    "class Net(nn.Module):\n    cuda: bool = True\n    device: str = 'cuda'\n\n    def forward(self, x):\n        return x.cuda() if self.cuda else x",
    "class Own:\n    def cuda(self, *a, **k):\n        return super().cuda(*a, **k)",
    "match device:\n    case 'cuda':\n        x = x.cuda()\n    case _:\n        pass",
    "def h(device: str = 'cuda' if {cuda}.is_available() else 'cpu', impl='cuda'):\n    pass",
    "text = f'''\n{{x.cuda()}} on {{device}}\n'''",
    "def gen():\n    {cuda}.empty_cache()\n    yield x.cuda()\n\n    # the end",
    "def train(m):\n    {cuda}.empty_cache()",
    "y = (\n    x\n    .cuda()  # go\n    .half()\n)",
    "print(f'{{x.cuda()}}', f\"cuda:{{rank}}\", f'cuda')",
    "from torch.cuda.amp import autocast as ac\nwith ac():\n    y = x",
    "def local():\n    import torch\n    from torch.cuda import is_available\n    return is_available()",
    "def shadow(torch, cuda):\n    return torch.cuda.is_available(), cuda.empty_cache()",
)  # fmt: skip

# Code that is not about a device, however much it looks so: it has to stay, to the byte.
UNRELATED = (
    "x = 1", "print('train on cuda', \"CUDA: %s\" % name)", "path = '/usr/local/cuda/bin'",
    "d = {{'cuda_callback': 1, 'cudnn': 2}}", "log = 'main.CUDACallback'  # cuda", "# torch.cuda.empty_cache()",
    "if args.cuda: pass", "self.cuda = True", "args.no_cuda = not args.cuda", "key = 'torch_cuda_manual_seed'",
    "scheduler.step()", "env.step()", "y = x.to(dtype)", "y = x.cpu()", "state.type(x, y)",
    "flags = ['-gencode', 'arch=compute_80']", "'''cuda'''", "r'\\cuda'", "b'cuda'", "x = a@b",
    "def nothing(): ...", "x = [\n    1,   2,  # odd   spacing\n      3,\n]", "lambda: (yield)",
    "if  x :\n    pass   # spaced", "x = {{ 'a':1 , }}", "cuda_home = None", "message = 'cuda is on'",
)  # fmt: skip
