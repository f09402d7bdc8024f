"""Compiles dumped programs with the real TPU compiler, for a TPU that this machine lacks.

Runs inside an interpreter with jax and libtpu, so it is self-contained. Arguments: a topology, a
time limit in seconds, then the programs (StableHLO, or HLO in files that end in .txt); each is
compiled for its number of devices.
Prints one JSON line: ``programs`` (the results of those that were tried, in order) and ``error``
(why not all were). The compiled text of each is written beside it, as PROGRAM.hlo. Nothing runs on
a TPU.
"""

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
    module_of_text = hlo.hlo_module_from_text(with_parts_as_instructions(text))
    proto = module_of_text.as_serialized_hlo_module_proto()
    donors = _DONORS.search(text.partition("\n")[0])
    with import_module("jax._src.interpreters.mlir").make_ir_context():
        module = ir.Module.parse(jaxlib.xla_computation_to_mlir_module(hlo.XlaComputation(proto)))
        main = next(f for f in module.body.operations if str(f.name) == '"main"')
        attributes = list(main.arg_attrs)
        for number in re.findall(r"\((\d+), \{\}\)", donors[1]) if donors else ():
            attributes[int(number)] = ir.Attribute.parse("{jax.buffer_donor = true}")
        main.arg_attrs = ir.ArrayAttr.get(attributes)
        return str(module)


_PART = re.compile(r"(%[\w.\-]+)#(\d+)")
_OF_PARTS = re.compile(r"^(\s*)(?:ROOT )?(%[\w.\-]+) = \((.*?)\) [\w\-]+\(.*$", re.MULTILINE)
_PARTS = re.compile(r"(?:/\*.*?\*/)?((?:[^,\[{]|\[.*?\]|\{.*?\})+),? ?")


def with_parts_as_instructions(text: str) -> str:
    """A newer XLA writes a part of a tuple as `%reduce.3#1`, which JAX's cannot read."""
    wanted: dict[str, set[int]] = {}
    for name, number in _PART.findall(text):
        wanted.setdefault(name, set()).add(int(number))

    def with_parts(found: re.Match[str]) -> str:
        space, name, types = found.groups()
        kinds = _PARTS.findall(types)
        lines = [
            f"{space}{name}_part_{number} = {kinds[number]} get-tuple-element({name}), "
            f"index={number}"
            for number in sorted(wanted.get(name, ()))
        ]
        return "\n".join([found[0], *lines])

    return _PART.sub(r"\1_part_\2", _OF_PARTS.sub(with_parts, text)) if wanted else text


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
        if "RET_CHECK" not in str(error):
            raise
        return _text_of_file(compiled.serialize()) if "async-update" in str(error) else ""


# Gathers that libtpu gives to the SparseCores, of embeddings mostly, are written with operands
# that JAX 0.10.2 refuses to read. They are left out here, from the module in the executable's file:
# blocks of 64 KiB that begin with 24 bytes of their own (Riegeli), with messages of Protocol
# Buffers.
_BLOCK, _BLOCK_START = 1 << 16, 24
_MODULE_START = re.compile(
    rb"\n(?=[\x80-\xff]{1,4}[\x00-\x7f]\n.{1,2}[\w.\-]+\x12.main)", re.DOTALL
)
_COMPUTATIONS, _INSTRUCTIONS, _OPCODE, _OPERANDS = 3, 2, 2, 36  # fields of hlo.proto
_BYTES = 2  # the type of a field that has a length


def _text_of_file(executable: bytes) -> str:
    start = sum(_number(executable, 0))
    data = b"".join(
        executable[at + _BLOCK_START : at + _BLOCK] for at in range(start, len(executable), _BLOCK)
    )
    for found in _MODULE_START.finditer(data):
        length, at = _number(data, found.end())
        module = data[at : at + length]
        with contextlib.suppress(ValueError):  # bytes that look like a module
            read = import_module("jaxlib._hlo").HloModule.from_serialized_hlo_module_proto
            return str(read(_with_field(module, _COMPUTATIONS, _with_one_operand)).to_string())
    return ""


def _with_one_operand(computation: bytes) -> bytes:
    def shortened(instruction: bytes) -> bytes:
        fields = list(_fields(instruction))
        if (_OPCODE, _BYTES, b"async-update") not in fields:
            return instruction
        return _with_field(
            instruction, _OPERANDS, lambda all_of_them: _as_bytes(_number(all_of_them, 0)[0])
        )

    return _with_field(computation, _INSTRUCTIONS, shortened)


def _with_field(message: bytes, field: int, change: Callable[[bytes], bytes]) -> bytes:
    """The message, with this field changed wherever it is."""
    made = b""
    for number, kind, value in _fields(message):
        new = change(value) if number == field and kind == _BYTES else value
        made += (
            _as_bytes(number << 3 | kind) + (_as_bytes(len(new)) if kind == _BYTES else b"") + new
        )
    return made


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, type and bytes of each field. Raises ValueError if these bytes are no message."""
    at = 0
    while at < len(message):
        key, start = _number(message, at)
        kind, end = key & 7, start
        match kind:
            case 0:
                end = _number(message, start)[1]
            case 1 | 5:
                end = start + (8 if kind == 1 else 4)
            case 2:
                length, start = _number(message, start)
                end = start + length
        if not key >> 3 or kind not in (0, 1, 2, 5) or end > len(message):
            raise ValueError("no message")
        yield key >> 3, kind, message[start:end]
        at = end


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
    raise ValueError("no number")


def _as_bytes(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


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
