"""How comparisons of random programs, on a target and on CPU torch, are started."""

import argparse
import importlib
import sys

from migrator.targets.copies import folder_to_import

DEVICES = {"torchax": "jax", "torch_xla": "xla"}


def asked(doc: str | None, count: int) -> tuple[str, range]:
    """The device of the target that the command line names, set up, and the seeds."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--target", choices=DEVICES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    args = parser.parse_args()
    sys.path.insert(0, str(folder_to_import(args.target)))
    importlib.import_module("tpu_runtime").setup()
    return DEVICES[args.target], range(args.seed, args.seed + args.count)
