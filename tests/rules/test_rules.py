"""Every rule: its examples, its dispatch, and what it says of itself."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import (
    DEVICE,
    REPOSITORY,
    TARGETS,
    constructs,
    errors,
    migrated,
    outcomes,
    reported,
    run,
    write_tree,
)

from migrator import migrate_paths
from migrator.analysis.cuda_libraries import MODULES as LIBRARIES
from migrator.construct import Construct
from migrator.examples import failures
from migrator.frameworks.torch.device_constructs import DEVICES
from migrator.options import Options
from migrator.pipeline.engine import migrate, migrate_file
from migrator.registry import registry, vocabulary
from migrator.report.explain import markdown
from migrator.rule import Rule
from migrator.targets import MIRRORED, RUNTIME, Snippet, portable, targets

RULES = list(registry().rules.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_examples(rule: Rule) -> None:
    """By the command that tests those of anybody's rules; see tests/rules/test_examples.py."""
    assert not list(failures([rule]))


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("todo_comments", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_second_run_changes_nothing(
    rule: Rule, target: str, todo_comments: bool, portable: bool
) -> None:
    """However an example is migrated."""
    for example in rule.examples:
        asked = replace(example.options, todo_comments=todo_comments, portable=portable)
        if portable:
            asked = replace(asked, shard="replicated")
        for entry in (False, True):
            path, options = Path(example.path), replace(asked, entry=entry)
            once = migrate_file(path, example.before.encode(), targets()[target], options)
            again = migrate_file(path, once.source, targets()[target], options)
            assert again.source.decode() == once.source.decode()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_rule_describes_itself(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.summary and not rule.summary.endswith(".")
    assert rule.why.strip().endswith(".")
    assert rule.examples
    assert all(re.match(r"https://\S+\Z", reference) for reference in rule.references)
    text = markdown(rule)
    assert text.startswith(f"# {rule.code} {rule.name}\n")
    assert "\n```" in text and f"ignore[{rule.code}]" in text


def test_codes_and_names_are_unique() -> None:
    files = [
        *(REPOSITORY / "rules").glob("*.py"),
        *(REPOSITORY / "migrator/targets").glob("*/rules/*.py"),
    ]
    modules = [ast.parse(path.read_bytes()) for path in files]
    written = [
        str(keyword.value.value)
        for module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rule"
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    ]
    assert sorted(written) == sorted(registry().rules)  # all are found, none twice
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_messages_only_point_to_rules_that_exist() -> None:
    files = [*(REPOSITORY / "rules").glob("*.py"), *(REPOSITORY / "migrator").rglob("*.py")]
    for path in files:
        for code in re.findall(r"explain ([A-Z]{3}\d{3})", path.read_text()):
            assert code in registry().rules, f"{path.name} points to {code}"


# ---- every construct of the inventory has a rule -------------------------------------------------

METHODS = ("cuda", "is_cuda", "pin_memory", "half", "record_stream", "get_device", "to", "type")
KEYWORDS = ("pin_memory", "pin_memory_device", "non_blocking", "device")
KEYS = [
    *(("name", name) for name in sorted(DEVICES.names)),
    *(("name", f"{prefix}.something") for prefix in DEVICES.prefixes),
    ("name", "torch.device"),
    ("name", "torch.Generator"),
    *(("method", name) for name in METHODS),
    *(("keyword", name) for name in KEYWORDS),
    ("string", "cuda"),
    ("tensor_type", "torch.cuda.FloatTensor"),
    *(("library", name) for name in sorted(LIBRARIES)),
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_every_key_of_the_inventory_has_a_handler(kind: str, key: str) -> None:
    assert registry().handlers(Construct(kind, key, ast.Pass())), f"no rule for {kind} {key}"


@pytest.mark.parametrize("name", sorted(vocabulary("torch").names))
def test_every_name_with_a_rule_is_found(name: str) -> None:
    """By its full name, and as what an import brings, whatever else the file says."""
    module, _, last = name.rpartition(".")
    head = name.partition(".")[0]
    for source in (f"import {head}\nf = {name}\n", f"from {module} import {last}\nf = {last}\n"):
        found = outcomes(run(source))
        assert {(code, what) for code, _, what in found if what in (name, last)}, source
        assert found == outcomes(run(f"{source}# cuda torch\n"))  # not for the words around it


METHODS_OF_TORCH = {
    "cuda": "y = x.cuda()\n",
    "is_cuda": "y = 1 if x.is_cuda else 2\n",
    "pin_memory": "y = x.pin_memory()\n",
    "record_stream": "x.record_stream(torch.cuda.current_stream())\n",
    "to": "y = x.to(0)\n",
    "type": "y = x.type(torch.cuda.FloatTensor)\n",
    "get_device": "y = torch.ones(x.shape, device=x.get_device())\n",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS_OF_TORCH)
def test_a_method_of_the_projects_own_is_not_torchs(
    tmp_path: Path, method: str, target: str
) -> None:
    """Unless it is known that the object is a tensor."""
    use = f"import torch\n{METHODS_OF_TORCH[method]}"
    batch = f"class Batch:\n    def {method}(self, *given):\n        return 1\n"
    files = {
        "batch.py": batch,
        "use.py": f"import batch\n{use}",
        "known.py": f"import batch\nfrom torch import ones\nx = ones(2)\n{use}",
        "other.py": use,
    }
    write_tree(tmp_path, files)
    results = {f.path.name: f.result for f in migrate_paths([tmp_path], target).files}
    line = use.splitlines()[-1]
    assert line in results["use.py"].source.decode()
    assert line not in results["known.py"].source.decode()
    assert line not in results["other.py"].source.decode()
    assert line in run(batch + use, target).source.decode()


def test_a_models_own_get_device_is_not_a_tensors() -> None:
    source = "import torch\ndef f(model, x):\n    return x.to(model.get_device())\n"
    assert reported(run(source)) == ["model.get_device"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("value", "asks"),
    [("pin", "pin and {}"), ("a or b", "(a or b) and {}"), ("f(x)", "f(x) and {}"), ("True", "{}")],
)
def test_a_portable_program_pins_memory_for_a_gpu(value: str, asks: str, target: str) -> None:
    source = f"from torch.utils.data import DataLoader\nx = DataLoader(d, pin_memory={value})\n"
    for entry in (False, True):
        text = migrated(source, target, portable=True, entry=entry)
        assert f"pin_memory={asks.format('tpu_runtime.is_cuda()')})" in text


CURRENT = "torch.cuda.current_device()"
TAKES_DEVICE = """import torch


class Bank:
    def __init__(self, x, device=None):
        self.device, self.x = None, x
        self.where = device

    def put(self, y):
        return torch.tensor(y, device=self.where)


def put(x, where):
    return x.to(where)


"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        (f"d = {CURRENT}\nb = Bank(1, device=d)\n", "device"),
        (f"b = Bank(1, {CURRENT})\n", "device"),
        (f"d = {CURRENT} if flag else 'cpu'\nput(x, d)\nprint(d)\n", "device"),
        (f"d = {CURRENT}\nprint(d, xs[d], d + 1)\n", "0"),
        (f"d = {CURRENT}\nx.to(d)\ny = xs[d]\n", "0"),  # x.to("jax")
        (f"d = {CURRENT}\nput(x, d)\ny = xs[d]\n", ""),
        (f"unknown({CURRENT})\n", ""),
        (f"class K(B, k={CURRENT}):\n    pass\n", ""),
        (f"def f():\n    return {CURRENT}\n", ""),
    ],
)
def test_the_current_device_is_a_number_or_a_device(code: str, becomes: str, target: str) -> None:
    text = migrated(TAKES_DEVICE + code, target)
    for quote in "'\"":
        text = text.replace(f"{quote}{targets()[target].api.device}{quote}", "device")
    assert code.replace(CURRENT, becomes or CURRENT).replace("x.to(d)", "x.to(device)") in text


TORCH_CUDA = (
    "amp.GradScaler", "amp.autocast", "amp.common", "amp.custom_bwd", "amp.custom_fwd",
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "CUDAGraph",
    "CUDAPluggableAllocator", "DoubleTensor", "Event", "ExternalStream", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "OutOfMemoryError", "ShortTensor", "Stream",
    "StreamContext", "_lazy_init", "_sleep", "can_device_access_peer",
    "caching_allocator_alloc", "caching_allocator_delete", "check_error", "clock_rate", "comm",
    "cudart", "current_blas_handle", "current_device", "current_stream", "default_generators",
    "default_stream", "device", "device_count", "device_of", "empty_cache",
    "get_allocator_backend", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_gencode_flags", "get_rng_state", "get_rng_state_all",
    "get_sync_debug_mode", "graph", "graph_pool_handle", "graphs.graph", "has_half",
    "host_memory_stats", "init", "initial_seed", "ipc_collect", "is_available",
    "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "list_gpu_processes",
    "make_graphed_callables", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory.empty_cache",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats",
    "memory_summary", "memory_usage", "nccl.version", "nvtx", "nvtx.mark", "nvtx.range",
    "nvtx.range_pop", "nvtx.range_push", "power_draw", "profiler.profile", "random.manual_seed",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
    "set_sync_debug_mode", "stream", "synchronize", "temperature", "utilization",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TORCH_CUDA)
@pytest.mark.parametrize(
    "form", ["torch.cuda.{}()\n", "f = torch.cuda.{}\n", "with torch.cuda.{}(a):\n    g(x)\n"]
)
def test_every_name_of_torch_cuda_gets_a_ruling(name: str, target: str, form: str) -> None:
    result = run("import torch\n" + form.format(name), target)
    assert not errors(result)
    found = constructs(result)
    assert found and not [d for d in found if d.code == "GEN001"]
    ast.parse(result.source)
    assert run(result.source, target).source == result.source
    if any(d.outcome == "reported" for d in found):
        assert all(d.message for d in found if d.outcome == "reported")
    elif any(d.outcome == "rewritten" for d in found):
        assert b"torch.cuda" not in result.source


# ---- the words of the targets --------------------------------------------------------------------


def _exported(target: str) -> tuple[set[str], set[str]]:
    """Names in `__all__` of a runtime, and names that its `__init__` binds, read without torch."""
    runtime = REPOSITORY / "migrator" / "runtime"
    package = runtime / target / RUNTIME
    tree = ast.parse((package / "__init__.py").read_bytes())
    bound: set[str] = set()
    offered: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.ImportFrom(level=1, module=str(module)):
                name = module.replace(".", "/")
                places = (folder / f"{name}.py" for folder in (package, runtime / "shared"))
                found = next((path for path in places if path.exists()), None)
                if found is None:  # a package, whose modules are imported
                    continue
                inner = ast.parse(found.read_bytes())
                for alias in statement.names:
                    assert alias.name in _defined(inner), (
                        f"{module}.py does not define {alias.name}"
                    )
                    bound.add(alias.asname or alias.name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                offered = set(ast.literal_eval(value))
            case ast.FunctionDef() | ast.ClassDef():
                bound.add(statement.name)
    return offered, bound


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.alias():
                names.add(node.asname or node.name)
    return names


@pytest.mark.parametrize("target", TARGETS)
def test_the_runtime_has_what_rewrites_use(target: str) -> None:
    offered, bound = _exported(target)
    assert offered <= bound
    assert offered >= MIRRORED
    folders = ("rules", "migrator/rule_api", "migrator/context")
    files = (path for folder in folders for path in (REPOSITORY / folder).glob("*.py"))
    text = "".join(path.read_text() for path in files)
    asked = set(re.findall(r"ctx\.code\.runtime\(\"(\w+)\"\)", text))
    used = asked | set(re.findall(r"\{RUNTIME\}\.(\w+)", text))
    assert len(asked) > 10, "the rules ask for what the runtime has"
    assert asked <= offered
    chooses, bound = _exported("portable")
    assert chooses <= bound
    assert used <= offered | chooses
    words = targets()[target].api
    for word in [*words.calls.values(), *words.renames.values(), words.autocast]:
        assert set(re.findall(rf"{RUNTIME}\.(\w+)", word.code)) <= offered
    words = portable(targets()[target]).api
    for word in [*words.renames.values(), words.autocast, words.device_object, words.step_boundary]:
        assert set(re.findall(rf"{RUNTIME}\.(\w+)", word.code if word else "")) <= chooses


@pytest.mark.parametrize("target", TARGETS)
def test_words_parse_and_import_what_they_name(target: str) -> None:
    words = targets()[target].api
    used = [*words.calls.values(), *words.renames.values(), words.autocast]
    used += [words.device_object] if words.device_object else []
    for word in used:
        filled = re.sub(r"\{\w+\}", "x", word.code)
        root = ast.parse(filled, mode="eval").body
        names = {n.id for n in ast.walk(root) if isinstance(n, ast.Name)} - {"x"}
        local = {r.partition(" as ")[2] or r.partition(".")[0] for r in word.requires}
        assert names == local


@pytest.mark.parametrize(
    ("imported", "spelled"),
    [("import torch as th\n", "th"), ("from torch.cuda import synchronize\n", "torch")],
)
def test_a_word_speaks_of_torch_as_the_file_does(imported: str, spelled: str) -> None:
    word = Snippet("{torch}.cpu.synchronize()", ("math",))
    calls = {"synchronize": word, "device_count": Snippet("{torch}.cpu.device_count()")}
    torchax = targets()["torchax"]
    words = replace(torchax.api, calls=calls, device_object=Snippet("{torch}.device(7)"))
    target = replace(torchax, api=words)
    function = "synchronize" if "from" in imported else "th.cuda.synchronize"
    source = f"{imported}{function}()\nx = y.cuda()\n"
    text = migrate(source.encode(), target, Options(entry=False)).source.decode()
    assert f"\n{spelled}.cpu.synchronize()\n" in text and f"import {spelled}" in text.replace(
        "import torch as ", "import "
    )
    assert "import math\n" in text


def test_questions_about_autocast_are_about_the_target() -> None:
    head, line = "import torch\nx = y.cuda()\n", "a = torch.is_autocast_enabled({}), torch.get_{}\n"
    asked, named = line.format("", "autocast_gpu_dtype()"), 'autocast_dtype("{}")'
    assert migrated(head + asked, "torchax").endswith(asked)  # its runtime answers
    assert migrated(head + asked, "torch_xla").endswith(line.format('"xla"', named.format("xla")))
    for target in TARGETS:
        becomes = [line.format(f'"{d}"', named.format(d)) for d in ("cuda", DEVICE[target])]
        assert migrated(head + becomes[0], target).endswith(becomes[1])
    bound = "from torch import is_autocast_enabled as asks\nx = y.cuda()\nasks()\n"
    assert reported(run(bound, "torchax")) == ["asks"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("given", ["'cuda', dtype=t", "'cuda', t", "device_type='cuda', dtype=t"])
def test_an_autocast_of_a_computed_type_names_the_target(given: str, target: str) -> None:
    result = run(f"import torch\nwith torch.autocast({given}):\n    f()\n", target)
    device = DEVICE[target]
    assert f"tpu_runtime.autocast({given.replace('cuda', device)})" in result.source.decode()
    assert not reported(result)
