"""Compiles dumped programs with the real TPU compiler, for a TPU that this machine lacks.

Runs inside an interpreter with jax and libtpu, so it is self-contained. Arguments: a topology, a
time limit in seconds, then the programs (StableHLO, or HLO in files that end in .txt); each is
compiled for its number of devices.
Prints one JSON line: ``programs`` (the results of those that were tried, in order) and ``error``
(why not all were). The compiled text of each is written beside it, as PROGRAM.hlo. Nothing runs on
a TPU.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_PRODUCT = re.compile(r"= (\S+) (dot|convolution)\(.*")
_PARTITIONS = re.compile(r"num_partitions ?= ?(\d+)")
_DONORS = re.compile(r"buffer_donor=\{(.*?)\}, \w")
# an asynchronous collective is counted by its start
_COLLECTIVE = re.compile(
    r"= .*\b(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\((.*)"
)
_KERNEL = re.compile(r'custom_call_target="tpu_custom_call".*?op_name="([^"]*)"', re.DOTALL)
# a part of a scope that comes from the source, not from JAX
_MODULE = re.compile(r"(?!(cond|branch_\d+_fun|shard_map)$)\w+(\.\w+)*")
_SCOPE = re.compile(r'op_name="(?:p?jit\([^)]*\)/)*([^"]*)/[^"/]*"')


def main() -> None:
    os.environ.update(TPU_SKIP_MDS_QUERY="1", JAX_PLATFORMS="cpu", TPU_LOG_DIR="disabled")
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # nothing runs
    topology, seconds, *names = sys.argv[1:]
    answer: dict[str, Any] = {"programs": [], "error": None}

    def give_up() -> None:
        print("\n" + json.dumps({**answer, "error": "the time budget was spent"}), flush=True)
        os._exit(0)  # the compiler can take minutes for one program, and cannot be interrupted

    budget = threading.Timer(float(seconds), give_up)
    budget.daemon = True
    budget.start()
    try:
        device = import_module("jax.experimental.topologies").get_topology_desc(topology, "tpu")
        for name in names:
            answer["programs"].append(_facts(Path(name), device.devices))
    except Exception as error:  # no libtpu, another jax: any error is reported
        answer["error"] = _first_line(error)
    budget.cancel()
    print("\n" + json.dumps(answer))


def _first_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:300]}"


def _facts(program: Path, devices: Sequence[Any]) -> dict[str, Any]:
    """The compiler's facts about one program; ``error`` if it refuses the program."""
    start = time.monotonic()
    facts: dict[str, Any] = {"file": program.name, "error": None}
    try:
        text = program.read_text(encoding="utf-8")
        facts["devices"] = int((_PARTITIONS.search(text) or ["", "1"])[1])
        module = _from_hlo(text) if program.suffix == ".txt" else text
        compiled = compile_text(module, devices[: facts["devices"]])
        facts |= facts_of(compiled)
        program.with_suffix(".hlo").write_text(text_of(compiled), encoding="utf-8")
    except Exception as error:  # mostly because it doesn't fit into a TPU's memory
        facts["error"] = _first_line(error)
    return {**facts, "seconds": time.monotonic() - start}


def _from_hlo(text: str) -> str:
    """HLO as StableHLO, with the arguments that outputs may overwrite."""
    hlo, jaxlib = import_module("jaxlib._hlo"), import_module("jaxlib._jax").mlir
    ir = import_module("jax._src.lib.mlir").ir
    proto = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    donors = _DONORS.search(text.partition("\n")[0])
    with import_module("jax._src.interpreters.mlir").make_ir_context():
        module = ir.Module.parse(jaxlib.xla_computation_to_mlir_module(hlo.XlaComputation(proto)))
        main = next(f for f in module.body.operations if str(f.name) == '"main"')
        attributes = list(main.arg_attrs)
        for number in re.findall(r"\((\d+), \{\}\)", donors[1]) if donors else ():
            attributes[int(number)] = ir.Attribute.parse("{jax.buffer_donor = true}")
        main.arg_attrs = ir.ArrayAttr.get(attributes)
        return str(module)


def facts_of(compiled: Any) -> dict[str, Any]:
    """Memory, cost, products and collectives of an executable, for one of its devices."""
    return {**_memory(compiled), **_cost(compiled), **_seen(text_of(compiled))}


def compile_text(text: str, devices: Sequence[Any]) -> Any:
    """The executable of a program that is partitioned for ``devices``."""
    # By name, since most of it is jax's own (hence the pinned version), and has no types.
    numpy = import_module("numpy")
    compiler = import_module("jax._src.compiler")
    mlir = import_module("jax._src.interpreters.mlir")
    ir = import_module("jax._src.lib.mlir").ir
    device_list = import_module("jaxlib._jax").DeviceList

    client = devices[0].client
    with mlir.make_ir_context():
        options = compiler.get_compile_options(
            num_replicas=1,
            num_partitions=len(devices),
            device_assignment=numpy.array([[device.id for device in devices]]),
            backend=client,
        )
        return client.compile(ir.Module.parse(text), device_list(tuple(devices)), options)


def _memory(compiled: Any) -> dict[str, int]:
    """Bytes; ``in_place``: of outputs that reuse the memory of arguments."""
    stats = compiled.get_compiled_memory_stats()
    parts = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    in_place = stats.alias_size_in_bytes
    return {**parts, "in_place": in_place, "hbm": sum(parts.values()) - in_place}


def _cost(compiled: Any) -> dict[str, float]:
    cost = compiled.cost_analysis()
    return {"flops": cost.get("flops", 0.0), "accessed": cost.get("bytes accessed", 0.0)}


def text_of(compiled: Any) -> str:
    """The optimised program; empty where this version of JAX can't read it (some for a v7x)."""
    try:
        return "\n".join(str(module.to_string()) for module in compiled.hlo_modules())
    except Exception as error:
        if "RET_CHECK" in str(error):
            return ""
        raise


def _seen(text: str) -> dict[str, Any]:
    """From the optimised program's text: products below the highest precision, collectives."""
    below = [
        f"{found[2]} to {found[1].partition('{')[0]}"
        for found in _PRODUCT.finditer(text)
        if "operand_precision={highest,highest}" not in found[0]
    ]
    return {"below": below, "collectives": _collectives(text), "kernels": _kernels(text)}


def _collectives(text: str) -> dict[str, dict[str, int]]:
    """The number of collectives by kind and module: `{"all-gather": {"fc2": 4}}`.

    Modules have their names from the source, with `*` for each number.
    """
    found: dict[str, dict[str, int]] = {}
    for match in _COLLECTIVE.finditer(text):
        scope = _SCOPE.search(match[3])
        parts = scope[1].split("/") if scope else []
        path = [part for part in parts if _MODULE.fullmatch(part)]
        module = re.sub(r"\b\d+\b", "*", ".".join(path))
        modules = found.setdefault(match[1], {})
        modules[module] = modules.get(module, 0) + 1
    return found


def _kernels(text: str) -> dict[str, int]:
    """The number of Pallas kernels by name; the cost analysis doesn't include them."""
    found: dict[str, int] = {}
    for match in _KERNEL.finditer(text):
        name = match[1].removesuffix("/pallas_call").rsplit("/", 1)[-1]
        found[name] = found.get(name, 0) + 1
    return found


if __name__ == "__main__":
    main()
