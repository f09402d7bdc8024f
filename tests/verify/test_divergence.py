"""Two runs against each other, where no tensors are: alignment, losses, gradients."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.verify.divergence import compare
from migrator.verify.recordings import STOPPED, Recording
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_table import verdict
from migrator.verify.tolerances import KINDS, TF32, Tolerances
from migrator.verify.verify_errors import VerifyError
from migrator.verify.verify_result import finite
from tests.verify.support import held, recording, safetensors


def loss(value: float | str, dtype: str = "F32", step: int = 0) -> dict[str, Any]:
    return {"kind": "loss", "name": "loss", "step": step, "line": "t.py:1", "value": value,
            "dtype": dtype}  # fmt: skip


def gradients(*, step: int = 0, **norms: float) -> dict[str, Any]:
    return {"kind": "gradients", "name": "SGD", "step": step, "line": "t.py:2", "norms": norms,
            "dtypes": {}}  # fmt: skip


class TestAlignment:
    def test_the_first_difference_is_the_first_in_the_run(self) -> None:
        golden = recording(loss(1.0), gradients(a=1.0), loss(0.5), gradients(a=0.9))
        run = recording(loss(1.0), gradients(a=1.2), loss(0.6), gradients(a=0.5))
        first = held(golden, run).first
        assert first is not None
        assert (first.kind, first.place, first.want, first.got) == ("gradients", "a", 1.0, 1.2)

    def test_what_is_missing_fails(self) -> None:
        found = held(recording(loss(1.0), loss(0.5), loss(0.25)), recording(loss(1.0), loss(0.5)))
        assert found.missing == ["loss 3 (t.py:1)"] and not found.passed

    def test_a_step_too_many_fails(self) -> None:
        golden, run = recording(loss(1.0)), recording(loss(1.0), loss(0.5), loss(0.5, step=1))
        found = held(golden, run, compiled=True)
        lines = ["loss 2 in step 1 (t.py:1 as migrated)", "loss 1 in step 2 (t.py:1 as migrated)"]
        assert found.surplus == lines and not found.passed
        line = verdict(ScriptResult("t.py", "torchax", compiled=found))
        assert line.endswith("not in the golden: loss 2 in step 1 (t.py:1 as migrated) and 1 more")
        assert not held(replace(golden, shortened=True), run, compiled=True).surplus

    def test_a_gradient_that_is_not_there_fails(self) -> None:
        found = held(recording(gradients(a=1.0, b=2.0)), recording(gradients(a=1.0)))
        assert found.first is not None and found.first.reason == "there is no gradient"

    def test_a_gradient_that_the_original_does_not_have_fails(self) -> None:
        found = held(recording(gradients(a=1.0)), recording(gradients(a=1.0, b=2.0)))
        assert found.first is not None and found.first.place == "b"
        assert held(recording(gradients(a=1.0)), recording(gradients(a=1.0, b=0.0))).passed

    def test_a_gradient_of_what_is_not_trained_is_named_first(self) -> None:
        golden, run = (
            gradients(a=1.0) | {"others": []},
            gradients(a=5.0) | {"others": ["Teacher.w"]},
        )
        first = held(recording(golden), recording(run)).first
        assert first is not None and first.place == "Teacher.w"
        assert first.reason == "there is a gradient, and none in the original"
        older = gradients(a=5.0)  # does not say
        assert held(recording(older), recording(run)).passed

    def test_a_step_taken_twice_is_named_first_and_where_it_is(self) -> None:
        golden = recording(loss(1.0), gradients(a=1.0), loss(0.5, step=1), gradients(a=0.5, step=1))
        again = gradients(a=1.0, step=1) | {"line": "t.py:3"}
        run = recording(loss(1.0), gradients(a=1.0), again, loss(0.2, step=2), gradients(a=0.2),
                        again)  # fmt: skip
        for how in run, replace(run, shortened=True):
            found = held(golden, how)
            first = found.first
            assert first is not None and (first.kind, first.name, first.line) == (
                "steps", "SGD", "t.py:2",
            )  # fmt: skip
            assert first.reason == (
                "steps twice before the next loss, once in the original "
                "(again at t.py:3 of the migrated script)"
            )
        result = ScriptResult("t.py", "torchax", stepwise=found)
        assert verdict(result).startswith("FAIL: t.py on the : SGD steps twice before")

    def test_steps_that_are_left_out_are_named_first(self) -> None:
        """As where gradients are gathered over more batches than in the original."""
        golden = recording(*[loss(1.0), gradients(a=1.0)] * 4)
        run = recording(*[loss(1.0), loss(1.0), gradients(a=2.0)] * 2)
        first = held(golden, run).first
        assert first is not None and first.kind == "steps"
        assert first.reason == "steps not at all before the next loss, once in the original"
        last = held(golden, recording(*golden.events[:-1])).first
        assert (
            last is not None
            and last.reason == "steps not at all before the end, once in the original"
        )

    def test_of_several_optimizers_and_ranks_each_is_counted(self) -> None:
        def of(*names: str) -> Recording:
            step, lost = gradients(a=1.0), loss(1.0)
            return recording(*((lost if n.endswith("loss") else step) | {"name": n} for n in names))

        pair = of("loss", "Adam", "loss", "SGD", "loss", "Adam")
        assert held(pair, pair).passed
        first = held(pair, of("loss", "Adam", "loss", "SGD", "SGD", "loss", "Adam")).first
        assert first is not None and (first.kind, first.name) == ("steps", "SGD")
        ranks = of("rank 0: loss", "rank 1: loss", "rank 0: SGD", "rank 1: SGD", "rank 1: loss")
        mixed = of("rank 1: loss", "rank 1: SGD", "rank 1: loss", "rank 0: loss", "rank 0: SGD")
        assert held(ranks, mixed).passed
        first = held(ranks, recording(*mixed.events, *of("rank 1: SGD").events)).first
        assert first is not None and (first.kind, first.name) == ("steps", "rank 1: SGD")

    def test_losses_that_a_line_search_asks_for_are_no_steps(self) -> None:
        golden = recording(gradients(a=1.0), *[loss(1.0)] * 3, gradients(a=1.0), loss(1.0))
        run = recording(gradients(a=1.0), *[loss(1.0)] * 2, gradients(a=1.0), loss(1.0))
        found = held(golden, run)
        assert not found.passed and not [f for f in found.findings if f.kind == "steps"]

    @pytest.mark.parametrize("whose", ["golden", "run"])
    def test_where_one_was_stopped_both_are_compared_as_far_as_they_came(self, whose: str) -> None:
        whole = (loss(1.0), gradients(a=1.0), loss(0.5), gradients(a=0.5))
        golden, run = recording(*whole, printed="x 0.5\ny 0.7"), recording(*whole[:3])
        run = recording(*whole[:3], printed="x 0.5", ended=STOPPED)
        if whose == "golden":
            golden, run = run, recording(*whole, printed="x 0.5\ny 0.7")
        found = held(golden, run)
        assert found.partial and found.passed and not found.missing
        assert sorted(f.kind for f in found.findings) == ["gradients", "loss", "loss", "printed"]

    def test_the_state_in_which_a_run_was_stopped_is_not_how_far_it_came(self) -> None:
        end = {"kind": "end", "name": "Net", "step": 1, "line": "", "tensors": {"weight": "w"}}
        golden = recording(loss(1.0), loss(0.5), end)
        found = held(golden, recording(loss(1.0), end, ended=STOPPED))
        assert found.passed and [f.kind for f in found.findings] == ["loss"]

    def test_what_is_missing_in_between_fails_there_too(self) -> None:
        golden = recording(loss(1.0), gradients(a=1.0), loss(0.5))
        found = held(golden, recording(loss(1.0), loss(0.5), ended=STOPPED))
        assert found.missing == ["gradients of SGD, call 1 (t.py:2)"]

    def test_a_file_in_a_folder_that_is_named_after_the_time_is_found(self) -> None:
        golden, run = recording(loss(1.0)), recording(loss(1.0))
        golden.files.append({"name": "runs/Nov23_10-59/w_1.pt", "tensors": {"bias": {}}})
        run.files.extend({"name": f"runs/Nov23_11-02/w_{n}.pt", "tensors": {}} for n in (1, 2))
        assert held(golden, run).missing == ["runs/Nov23_10-59/w_1.pt: bias"]
        run.files.clear()
        assert held(golden, run).missing == ["the file runs/Nov23_10-59/w_1.pt"]

    def test_a_run_that_was_to_end_early_is_compared_until_there(self) -> None:
        golden = recording(*[loss(1.0), gradients(a=1.0)] * 3, printed="a 1.5\nb 2.5\n")
        run = recording(*[loss(1.0), gradients(a=1.0)] * 2, printed="a 1.5\n")
        assert held(golden, run).missing
        found = held(golden, replace(run, shortened=True))
        assert found.passed and found.shortened and not found.partial
        faulty = held(golden, replace(recording(loss(1.0), loss(1.0)), shortened=True))
        assert faulty.missing == ["gradients of SGD, call 1 (t.py:2)"]

    def test_nothing_in_common_is_no_pass(self) -> None:
        assert not held(recording(loss(1.0)), recording(ended=STOPPED)).passed


class TestNumbers:
    @pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
    def test_nan_and_inf_never_pass(self, value: str) -> None:
        for golden, run in ((value, 1.0), (1.0, value), (value, value)):
            found = held(recording(loss(golden)), recording(loss(run)))
            assert found.first is not None and found.first.reason == "NaN or Inf"
        found = held(recording(gradients(a=1.0)), recording(gradients(a=float(value))))
        assert not found.passed
        text = json.dumps(finite({"ratio": found.findings[0].ratio}), allow_nan=False)
        assert text == '{"ratio": "inf"}'

    def test_a_buffer_may_be_a_mask(self, tmp_path: Path) -> None:
        """Which may be in no checkpoint, and so not among what a module is at first."""
        of = {"kind": "buffers", "name": "rank 0: Net", "step": 0, "line": "t.py:1"}
        event = {**of, "tensors": {"mask": "a"}}
        found = []
        for name, values in ("golden", [0, -math.inf]), ("same", [0, -math.inf]), ("other", [0, 0]):
            (tmp_path / name).write_bytes(safetensors({"a": ("F32", [2], values)}))
            found.append(replace(recording(event), folder=tmp_path, tensors=name))
        golden, same, other = found
        assert compare(golden, [], same, Path(sys.executable), tmp_path).passed
        assert not compare(golden, [], other, Path(sys.executable), tmp_path).passed

    def test_what_a_library_keeps_in_a_file_may_be_infinite(self, tmp_path: Path) -> None:
        """A best score, before there is one; parameters are known by their paths."""
        found = []
        for name, value in ("golden", math.inf), ("same", math.inf), ("other", 1.0):
            (tmp_path / name).write_bytes(safetensors({"a": ("F32", [1], [value])}))
            file = {"name": "last.ckpt", "tensors": {"callbacks.best": "a"}}
            found.append(replace(recording(), folder=tmp_path, tensors=name, files=[file]))
        golden, same, other = found
        assert compare(golden, [], same, Path(sys.executable), tmp_path).passed
        assert not compare(golden, [], other, Path(sys.executable), tmp_path).passed

    @pytest.mark.parametrize("kept, largest", [("exp_avg", 1e-3), ("exp_avg_sq", 1e-6)])
    def test_what_an_optimizer_keeps_of_a_gradient_of_zero(
        self, kept: str, largest: float, tmp_path: Path
    ) -> None:
        """A bias in front of a normalization has a gradient of nothing but rounding."""
        nothing = 1e-9 if kept == "exp_avg" else 1e-18

        def file(name: str, of_bias: float, of_weight: float) -> Recording:
            values = {"a": ("F32", [1], [of_bias]), "b": ("F32", [1], [of_weight])}
            (tmp_path / name).write_bytes(safetensors(values))
            paths = {f"optimizer.state.{n}.{kept}": key for n, key in enumerate("ab")}
            saved = [{"name": "last.pt", "tensors": paths}]
            return replace(recording(), folder=tmp_path, tensors=name, files=saved)

        golden = file("golden", nothing, largest)
        for run, passes in (
            (file("rounding", 5 * nothing, largest), True),
            (file("another", nothing, 1.001 * largest), False),
            (file("a gradient", 0.1 * largest, largest), False),
            (file("the square of one", 3e-4 * largest, largest), False),
        ):
            found = compare(golden, [], run, Path(sys.executable), tmp_path)
            assert found.passed == passes and found.compared == 2

    def test_what_rounding_does_to_the_original_is_allowed_many_times(self) -> None:
        golden, run = recording(loss(1.0)), recording(loss(1.001))
        assert not held(golden, run).passed
        assert held(golden, run, recording(loss(1.0002))).passed
        assert not held(golden, run, recording(loss(1.00001))).passed
        assert not held(golden, run, recording(loss("nan"))).passed
        assert held(golden, run, recording(loss(1.0)), recording(loss(1.0002))).passed

    def test_what_grows_in_one_run_may_grow_in_another(self) -> None:
        """A step in which no rounding run cut off otherwise, and the run did."""
        values = (1.0, 0.8, 0.6)

        def run(*off: float) -> Recording:
            both = zip(values, off, strict=True)
            steps = [(loss(v + d, step=n), gradients(step=n, a=v + d))
                     for n, (v, d) in enumerate(both)]  # fmt: skip
            return recording(*(event for step in steps for event in step))

        golden, rounded = run(0, 0, 0), run(1e-6, 1e-5, 1e-4)
        assert held(golden, run(1e-6, 9e-5, 9e-4), rounded).passed
        assert not held(golden, run(9e-5, 9e-4, 9e-4), rounded).passed  # not at the first step
        assert not held(golden, run(1e-6, 9e-5, 9e-3), rounded).passed
        assert not held(golden, run(1e-6, 9e-5, 9e-4), run(1e-6, 1e-6, 1e-6)).passed

    def test_units_are_those_of_the_coarser_type(self) -> None:
        golden, run = recording(loss(1.0)), recording(loss(1.0 + TF32 / 2))
        assert not held(golden, run).passed
        assert held(golden, run, tolerances=Tolerances(tf32=True)).passed
        assert held(recording(loss(1.0, "BF16")), recording(loss(1.01, "BF16"))).passed

    def test_tolerances_are_multiplied_by_kind(self) -> None:
        golden = recording(loss(1.0), gradients(a=1.0))
        run = recording(loss(1.0 + 3e-5), gradients(a=1.0 + 3e-4))
        assert [f.kind for f in held(golden, run).findings if not f.passed] == ["loss", "gradients"]
        some = Tolerances.parse(["loss=4"])
        assert [f.kind for f in held(golden, run, tolerances=some).findings if not f.passed] == [
            "gradients"
        ]
        assert held(golden, run, tolerances=Tolerances.parse(["2", "gradients=4", "loss=4"])).passed

    @pytest.mark.parametrize("text", ["x", "outputs=2", "output=", "0", "-1", "inf", "nan", "=2"])
    def test_a_tolerance_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(VerifyError, match="--tolerance"):
            Tolerances.parse([text])

    def test_every_kind_has_a_factor(self) -> None:
        assert {Tolerances.parse(["3", f"{kind}=2"]).factor(kind) for kind in KINDS} == {2.0}


def test_a_result_is_json_whatever_it_found() -> None:
    found = held(recording(loss(1.0)), recording(loss("nan")))
    result = ScriptResult("t.py", "torchax", stepwise=found, tolerances=Tolerances.parse(["2"]))
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["stepwise"]["findings"][0]["got"] == "nan"
    assert read["tolerances"] == {"factors": {"": 2.0}, "tf32": False, "float64": False}
    assert math.isinf(float(read["stepwise"]["findings"][0]["ratio"]))
