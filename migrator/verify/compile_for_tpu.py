"""Compiles dumped StableHLO programs by the real TPU compiler, for a TPU that is not there.

Runs inside torchax's interpreter (needs jax and libtpu), so it is self-contained. Arguments: a
time budget in seconds, then the programs. Prints one JSON line: ``compiled`` (how many),
``offenders`` (products of the TPU programs below the highest precision), ``error``. Nothing runs
on a TPU.
"""

import json
import os
import re
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

TOPOLOGY = "v6e:2x4"
_PRODUCT = re.compile(r"= (\S+) (dot|convolution)\(.*")


def main() -> None:
    os.environ.update(TPU_SKIP_MDS_QUERY="1", JAX_PLATFORMS="cpu", TPU_LOG_DIR="disabled")
    answer: dict[str, Any] = {"compiled": 0, "offenders": [], "error": None}

    def give_up() -> None:
        print("\n" + json.dumps({**answer, "error": "the time budget was spent"}), flush=True)
        os._exit(0)  # the compiler can take minutes for one program, and cannot be interrupted

    budget = threading.Timer(float(sys.argv[1]), give_up)
    budget.daemon = True
    budget.start()
    try:
        for name in sys.argv[2:]:
            answer["offenders"] += _below_highest(_compile(Path(name)), Path(name).name)
            answer["compiled"] += 1
    except Exception as error:  # jax's internals: whatever they raise is said, never swallowed
        first = (str(error).strip().splitlines() or [""])[0]
        answer["error"] = f"{type(error).__name__}: {first[:200]}"
    budget.cancel()
    print("\n" + json.dumps(answer))


def _compile(program: Path) -> str:
    """The optimised TPU program's text."""
    # By name, since most of it is jax's own (hence the pinned version), and has no types.
    numpy = import_module("numpy")
    compiler = import_module("jax._src.compiler")
    mlir = import_module("jax._src.interpreters.mlir")
    ir = import_module("jax._src.lib.mlir").ir
    topologies = import_module("jax.experimental.topologies")
    device_list = import_module("jaxlib._jax").DeviceList

    device = topologies.get_topology_desc(TOPOLOGY, "tpu").devices[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(program.read_text(encoding="utf-8"))
        options = compiler.get_compile_options(
            num_replicas=1,
            num_partitions=1,
            device_assignment=numpy.array([[device.id]]),
            backend=device.client,
        )
        compiled = device.client.compile(module, device_list((device,)), options)
    return str(compiled.hlo_modules()[0].to_string())


def _below_highest(text: str, name: str) -> list[str]:
    return [
        f"{found[2]} to {found[1].partition('{')[0]} in {name} compiled for {TOPOLOGY}"
        for found in _PRODUCT.finditer(text)
        if "operand_precision={highest,highest}" not in found[0]
    ]


if __name__ == "__main__":
    main()
