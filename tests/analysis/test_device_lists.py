"""Lists and tables with "cuda" in them: devices, or labels that look like them."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import DEVICE, TARGETS, assert_sound, run

from migrator.diagnostics import Outcome

# Nothing here is a device: a file, or a person who reads it, expects "cuda".
LABELS = {
    "the columns of a file": """
        import csv
        headers = ["name", "cpu", "cuda"]
        writer = csv.DictWriter(file, fieldnames=headers)
        writer.writerow({"name": "a", "cpu": 1, "cuda": 2})
    """,
    "rows": 'rows = [["cpu", "cuda"], [1, 2]]',
    "a column": 'table = {"kind": ["cpu", "cuda"], "time": [1, 2]}',
    "a legend": """
        import matplotlib.pyplot as plt
        plt.legend(["cpu", "cuda"])
    """,
    "keys from a call": 'times = dict.fromkeys(["cpu", "cuda"], 0)\ntimes["cuda"] += 1',
    "keys from a comprehension": """
        columns = ("cpu", "cuda")
        results = {column: [] for column in columns}
        results["cuda"].append(1)
    """,
    "a position": 'KINDS = ["cpu", "cuda"]\nplace = KINDS.index("cuda")',
    "positions of others": 'KINDS = ["cpu", "cuda"]\nplace = KINDS.index(kind)',
    "an option of another name": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--kernels", choices=["cpu", "cuda"], default=DEFAULT)
    """,
    "a test of something else": 'assert kind in ["cpu", "cuda"]',
    "a test of something else by name": 'KINDS = {"cpu", "cuda"}\nassert kind in KINDS',
    "a loop over names": 'for name in ("cpu", "cuda"):\n    print(name, lines.count(name))',
    "requirements": 'for extra in ["cpu", "cuda"]:\n    install(f"package[{extra}]")',
    "an enumeration": 'for i, name in enumerate(["cpu", "cuda"]):\n    plot(i, name)',
    "a returned list": 'def names():\n    return ["cpu", "cuda"]',
    "devices that are also the columns of a file": """
        import csv
        devices = ["cpu", "cuda"]
        writer = csv.DictWriter(file, fieldnames=devices)
        writer.writerow({"cpu": 1, "cuda": 2})
    """,
    "devices whose results another function reads": """
        def measure():
            times = {}
            for device in ["cpu", "cuda"]:
                times[device] = run(torch.ones(2, device=device))
            return times
        found = measure()
        print(found["cuda"] / found["cpu"])
    """,
    "a choice that is the key of a pair": 'pair = {"cuda" if fast else "cpu": 1}',
}
# What becomes "jax", beside what follows from it.
DEVICES = {
    "a loop": 'for d in ["cpu", "cuda"]:\n    x = torch.ones(2, device=d)',
    "a loop over a name": 'KINDS = ["cpu", "cuda"]\nfor d in KINDS:\n    x = torch.ones(2).to(d)',
    "an enumeration": 'for i, d in enumerate(["cpu", "cuda"]):\n    x = torch.ones(i, device=d)',
    "pairs": 'for d, n in zip(("cpu", "cuda"), (1, 2)):\n    x = torch.ones(n, device=d)',
    "products": """
        import itertools
        for n, d in itertools.product([1, 2], ["cpu", "cuda"]):
            x = torch.ones(n, device=d)
    """,
    "a comprehension": 'xs = [torch.ones(2, device=d) for d in ("cpu", "cuda")]',
    "a sorted list": 'for d in sorted(["cuda", "cpu"]):\n    x = torch.ones(2, device=d)',
    "a test": 'assert x.device.type in ("cpu", "cuda")',
    "a test by name": 'KINDS = ("cpu", "cuda")\nassert x.device.type in KINDS',
    "a position": 'KINDS = ["cpu", "cuda"]\nplace = KINDS.index(x.device.type)',
    "an option": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
        x = torch.ones(2, device=parser.parse_args().device)
    """,
    "an option with names for its values": """
        import argparse
        KINDS = ["cpu", "cuda"]
        DEFAULT = "cuda"
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", choices=KINDS, default=DEFAULT)
        parser.set_defaults(device="cuda")
    """,
    "an option that reaches a device": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--where", choices=["cpu", "cuda"], default="cuda")
        args = parser.parse_args()
        x = torch.ones(2, device=args.where)
    """,
    "a list that grows": """
        devices = ["cpu"]
        if torch.cuda.is_available():
            devices.append("cuda")
    """,
    "a joined list": 'devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])',
    "parameters of a test": """
        import pytest
        @pytest.mark.parametrize("device", ["cpu", "cuda"])
        def test_it(device):
            x = torch.ones(2, device=device)
    """,
    "a loop that fills a table": """
        times = {}
        for d in ["cpu", "cuda"]:
            x = torch.ones(2, device=d)
            times[d] = 1.0
        print(times["cuda"] / times["cpu"], times.get("cuda"))
    """,
}
# A target whose program chooses its device asks for both names here.
TABLES = {
    "a table by device": 'rates = {"cpu": 0.1, "cuda": 0.01}\nrate = rates[x.device.type]',
    "a table by device, or else": """
        rates = {"cpu": 0.1, "cuda": 0.01}
        rate = rates.get(x.device.type, 1.0)
    """,
    "a choice that is a key": """
        rates = {"cpu": 0.1, "cuda": 0.01}
        rate = rates["cuda" if fast else "cpu"]
    """,
    "a table read on the spot": 'rate = {"cpu": 0.1, "cuda": 0.01}[x.device.type]',
    "a table read on the spot, or else": 'rate = {"cuda": 0.01}.get(x.device.type, 1.0)',
    "a table that is asked for a device": """
        rates = dict.fromkeys(("cpu", "cuda"), 0.1)
        if x.device.type in rates:
            print(rates["cuda"])
    """,
}


def both(text: str) -> str:
    return f"import torch\n{dedent(text)}\n"


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("kind", LABELS)
def test_a_label_stays(kind: str, target: str) -> None:
    source = both(LABELS[kind])
    result = run(source, target)
    before, after = source, result.source.decode()
    if ".ones(" in before:  # all of it stays, or all of it changes
        assert ('"cuda"' in after) is (after.count('"cuda"') == before.count('"cuda"'))
    else:
        assert after == before
    assert any(d.outcome is Outcome.REPORTED for d in result.diagnostics)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [*DEVICES, *TABLES])
def test_a_device_changes_with_its_keys_and_defaults(kind: str, target: str) -> None:
    source = both({**DEVICES, **TABLES}[kind])
    result = run(source, target)
    assert_sound(result, target)
    after = result.source.decode()
    assert '"cuda"' not in after
    assert after.count(f'"{DEVICE[target]}"') == source.count('"cuda"')
    assert not any(d.outcome is Outcome.REPORTED for d in result.diagnostics)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_by_device_keeps_both_where_the_program_chooses(kind: str) -> None:
    result = run(both(TABLES[kind]), "torch_tpu")
    assert result.source.decode() == both(TABLES[kind])
    assert any(d.outcome is Outcome.REPORTED for d in result.diagnostics)
