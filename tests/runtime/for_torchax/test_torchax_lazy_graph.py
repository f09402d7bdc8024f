"""The lazy graph: results that are recorded, and computed together."""

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

import jax
import pytest
import torch
import torchax
import tpu_runtime as tpu
from tiers import thorough_but
from torch import Tensor, nn, optim
from tpu_runtime.lazy import lazy_arrays, lazy_graph, lazy_programs

from tests.runtime.for_torchax import lazy_loops
from tests.runtime.for_torchax.lazy_loops import LOOPS, Loop, agree, eager
from tests.runtime.for_torchax.modules import GRADIENTS, STEP, compiled, mlp
from tests.runtime.support import ROOT, batch, run

pytestmark = pytest.mark.usefixtures("no_programs")


@pytest.mark.parametrize(
    "loop",
    thorough_but([lazy_loops.clipping_and_a_schedule], LOOPS),
    ids=lambda loop: loop.__name__,
)
def test_the_numbers_are_those_of_eager_operators(loop: Loop) -> None:
    agree(loop)


@pytest.mark.thorough
def test_in_bfloat16() -> None:
    agree(lazy_loops.bfloat16, 3e-2)


def test_dropout_draws_what_it_drew() -> None:
    results = []
    for how in (eager, contextlib.nullcontext):
        torch.manual_seed(3)
        with how():
            results.append([x.detach().cpu().double() for x in lazy_loops.dropout("jax")])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_in_float64() -> None:
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import torch
torch.set_default_dtype(torch.float64)
from tests.runtime.for_torchax.lazy_loops import LOOPS, agree
for loop in LOOPS:
    agree(loop, 1e-10)
print(len(LOOPS))
"""
    done = run(code, JAX_ENABLE_X64="1", TPU_MIGRATE_TARGET="torchax")
    assert done.stdout.split() == [str(len(LOOPS))], done.stderr


def test_a_program_that_is_too_large_runs_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED")

    model, optimizer = warm()
    lazy_programs._programs.clear()
    calls = lazy_programs.record.calls
    with monkeypatch.context() as patched:
        patched.setattr(lazy_programs, "_compiled", refuse)
        train(model, optimizer, range(4))
    assert lazy_programs.record.calls == calls and len(lazy_programs._programs) == 1
    found = [p.detach().cpu() for p in model.parameters()]
    torch.manual_seed(0)
    model, optimizer = warm()
    train(model, optimizer, range(4))
    assert lazy_programs.record.calls > calls
    for a, b in zip(found, model.parameters(), strict=True):
        assert torch.allclose(a, b.detach().cpu(), rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_many_calls_of_a_model_are_several_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_graph, "LARGEST", 500)
    lazy_loops.a_cell_for_each_word("jax")
    sizes = [sum(o.size for o, *_ in p.plan) for p in lazy_programs._programs.values()]
    assert 250 < max(sizes) <= 500


def train(model: nn.Module, optimizer: optim.Optimizer, numbers: Iterable[int]) -> None:
    for number in numbers:
        optimizer.zero_grad()
        model(batch(number, 3, 4).to("jax")).square().mean().backward()
        optimizer.step()


def warm() -> tuple[nn.Module, optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp(4, 5, 2).to("jax")
    optimizer = optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, range(3))
    assert compiled(model, GRADIENTS) == compiled(optimizer, STEP) == 1
    return model, optimizer


def test_what_is_dropped_is_neither_run_nor_kept() -> None:
    model, _ = warm()
    before = lazy_programs.record.calls
    x = batch(0, 3, 4).to("jax")
    out = model(x).square()
    inputs, results = weakref.ref(x.jax()), weakref.ref(lazy_arrays.stored(out))
    assert isinstance(lazy_arrays.stored(out), lazy_arrays.LazyArray)
    del x, out
    gc.collect()
    lazy_graph.run()
    assert inputs() is None and results() is None
    assert lazy_programs.record.calls == before


def test_steps_keep_nothing() -> None:
    model, optimizer = warm()
    kept = []
    for number in range(6):
        train(model, optimizer, [number])
        kept.append(len([o for o in gc.get_objects() if isinstance(o, lazy_arrays.LazyArray)]))
    assert kept[-1] == kept[2]


def test_an_average_of_the_weights_outlives_the_step() -> None:
    """Nobody's array is given away to a step."""
    model, optimizer = warm()
    kept = [p.detach().clone() for p in model.parameters()]
    aliases = [p.jax() for p in model.parameters()]
    train(model, optimizer, [9])
    for parameter, clone, alias in zip(model.parameters(), kept, aliases, strict=True):
        assert torch.equal(torch.tensor(alias.tolist()), clone.cpu())
        assert not torch.equal(parameter.cpu(), clone.cpu())


def test_errors_come_where_they_came() -> None:
    model, _ = warm()
    loss = model(batch(0, 3, 4).to("jax")).square().mean()
    with pytest.raises((RuntimeError, TypeError)):
        model(batch(0, 3, 4).to("jax")) @ torch.ones(3, 3, device="jax")
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    weight = model[0].weight
    out = model(batch(0, 3, 4).to("jax")).exp()
    with torch.no_grad():
        out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    assert torch.isfinite(weight.grad.cpu()).all()


def test_a_number_that_changes_at_each_step_is_an_input() -> None:
    programs, calls = lazy_programs.record.programs, lazy_programs.record.calls
    agree(lazy_loops.weighted)
    assert lazy_programs.record.programs - programs <= 4
    assert lazy_programs.record.calls - calls >= 10


def test_values_that_change_at_each_step_compile_no_program_each() -> None:
    model, optimizer = warm()
    before = lazy_programs.record.programs
    for number in range(12):
        optimizer.zero_grad()
        loss = model(batch(number, 3, 4).to("jax")).square().mean() ** (1 + number / 7)
        loss.backward()
        optimizer.step()
    assert lazy_programs.record.programs - before <= lazy_programs.UNUSED


def test_everything_that_reads() -> None:
    model, _ = warm()
    x = batch(0, 3, 4)
    expected = (mine := mlp(4, 5, 2)).load_state_dict(
        {name: value.cpu() for name, value in model.state_dict().items()}
    )
    assert not expected.missing_keys
    truth = mine(x)

    def out() -> Tensor:
        result = model(x.to("jax"))
        assert isinstance(lazy_arrays.settled(lazy_arrays.stored(result)), lazy_arrays.LazyArray)
        assert result.shape == (3, 2) and result.dtype == torch.float32 and result.ndim == 2
        assert result.device.type == "jax" and result.requires_grad
        return result

    assert out().sum().item() == pytest.approx(truth.sum().item(), rel=1e-5)
    assert float(out()[0, 0]) == pytest.approx(truth[0, 0].item(), rel=1e-5)
    assert out().tolist() == [pytest.approx(row, rel=1e-5) for row in truth.tolist()]
    assert torch.allclose(out().detach().cpu(), truth, rtol=1e-5)
    assert out().detach().numpy() == pytest.approx(truth.detach().numpy(), rel=1e-5)
    assert f"{out().sum():.3f}" == f"{truth.sum():.3f}"
    assert "grad" in repr(out())
    assert bool((out() > 100).any()) is False
    waited_for = out()
    tpu.synchronize()
    assert not isinstance(lazy_arrays.stored(waited_for), lazy_arrays.LazyArray)
    written = out().detach()
    written[0] = 0
    assert written.cpu()[0].tolist() == [0, 0]
    view = out().detach()[1:]
    view.add_(1)
    assert torch.allclose(view.cpu(), truth[1:].detach() + 1, rtol=1e-5)
    assert torch.equal(torch.isnan(out()).cpu(), torch.zeros(3, 2, dtype=torch.bool))


def test_an_error_names_the_line_that_was_recorded_and_loses_nothing_beside_it() -> None:
    with jax.debug_nans(True):
        given = torch.ones(3).to("jax")
        wrong = (given - 2).log()
        follows = wrong + 1
        apart = given * 2 + 1
        with pytest.raises(FloatingPointError) as error:
            follows.tolist()
        assert "wrong = (given - 2).log()" in "".join(error.value.__notes__)
        assert apart.tolist() == [3, 3, 3]
        for lost in (wrong, follows):
            with pytest.raises(FloatingPointError):
                lost.tolist()


def test_an_interrupted_program_is_computed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    given = torch.ones(3).to("jax")
    found, made = given * 2 + 1, torch.ones(2, device="jax")
    with monkeypatch.context() as patched:
        patched.setattr(lazy_programs, "_program", interrupt)
        with pytest.raises(KeyboardInterrupt):
            found.tolist()
    assert found.tolist() == [3, 3, 3]
    assert made.tolist() == [1, 1]


def test_threads_record_and_read_at_the_same_time() -> None:
    """As loaders and writers of logs do."""
    shared = torch.ones(4).to("jax") * 2
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        with torchax.default_env():
            total = shared * 0
            for n in range(20):
                total = total + shared * number
                if n % 7 == number:
                    total.tolist()
            found[number] = total.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [40.0 * number] * 4 for number in range(4)}


def test_a_loop_without_reads_is_divided_where_it_began() -> None:
    """A program is that of some whole rounds, so that the next ones need no new program."""
    x, programs = torch.ones(4).to("jax"), []
    for _ in range(6):
        before = lazy_programs.record.programs
        for _ in range(lazy_graph.LONGEST):
            x = x * 0.999
            x = x + 0.001
            x = x.abs()
        programs.append(lazy_programs.record.programs - before)
    assert programs[0] and not any(programs[3:])
    assert x.tolist() == [pytest.approx(1, rel=1e-3)] * 4


def test_operators_on_recorded_values_are_never_computed_with_old_ones() -> None:
    base = torch.zeros(4).to("jax")
    view, whole = base[1:3], base.detach()
    before = base.clone()
    view += 1
    after = base.clone()
    whole[0] = 5
    counts = torch.zeros(3).to("jax")
    counts[torch.tensor([0, 2]).to("jax")] += 1
    assert before.tolist() == [0, 0, 0, 0]
    assert after.tolist() == [0, 1, 1, 0]
    assert base.tolist() == [5, 1, 1, 0]
    assert counts.tolist() == [1, 0, 1]


def test_lists_of_tensors_that_share_values_are_changed_one_after_another() -> None:
    base = torch.ones(3).to("jax")
    torch._foreach_mul_([base, base[:2]], 2)
    assert base.tolist() == [4, 4, 2]


def test_numbers_of_a_generator_are_drawn_in_each_round() -> None:
    """A draw of the CPU is no constant of a program."""
    own, same = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    for _ in range(3):
        drawn = torch.zeros(2).to("jax") + 0
        expected = torch.zeros(2).normal_(generator=same).tolist()
        assert drawn.normal_(generator=own).tolist() == pytest.approx(expected)


def test_written_programs_have_the_line_of_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    x = batch(0, 3, 4).to("jax")
    first = x.sinh()
    line = sys._getframe().f_lineno - 1
    second = (x * 2).sinh()
    lazy_graph.run()
    del first, second
    (file,) = tmp_path.glob("*.mlir")
    text = file.read_text("utf-8")
    assert f'test_torchax_lazy_graph.py":{line}:12 to :20)' in text
    assert f'test_torchax_lazy_graph.py":{line + 2}:13 to :27)' in text
    assert "torchax/ops" not in text and "tpu_runtime/" not in text


def test_a_loop_without_an_optimizer_is_one_program_for_each_backward_pass() -> None:
    weight = torch.ones(3, 2).to("jax").requires_grad_()
    calls = []
    for number in range(6):
        before = lazy_programs.record.calls
        x = batch(number, 4, 3).to("jax")
        (x @ weight).square().mean().backward()
        assert weight.grad is not None
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad.zero_()
        calls.append(lazy_programs.record.calls - before)
    assert calls[2:] == [1] * 4


@pytest.mark.parametrize("is_turned", [False, True])
def test_gradients_follow_how_elements_lie_in_memory(is_turned: bool) -> None:
    """torch's gradient of `solve` uses a decomposition of the matrix, or of its transpose."""
    found = []
    for device in ("cpu", "jax"):
        matrix = (batch(0, 3, 3) + 3 * torch.eye(3)).to(device).requires_grad_()
        for given in (matrix, torch.stack([matrix, matrix], -1)[..., 0]):
            solved = torch.linalg.solve(
                given.t() if is_turned else given, batch(1, 3, 2).to(device)
            )
            matrix.grad = None
            solved.square().sum().backward()
            assert matrix.grad is not None
            found.append(matrix.grad.cpu())
    for mine, theirs in zip(found[2:], found[:2], strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
