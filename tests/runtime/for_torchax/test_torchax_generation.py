"""What a token costs in `generate` on torchax, beside what its model computes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
import torchax
import tpu_runtime as tpu

from tests.runtime.generating import llama, moved, prompts
from tests.runtime.support import agree, batch

tpu.setup()


def test_products_of_attention_keep_batch_and_heads_apart() -> None:
    """Of batch and heads as one dimension XLA makes a copy of a cache, on a CPU."""
    env = torchax.default_env()
    weights, values = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 8, 3)

    def product(*arrays: Any) -> Any:
        one, other = (torchax.tensor.Tensor(array, env) for array in arrays)
        return (one @ other).jax()

    arrays = [tensor.to("jax").jax() for tensor in (weights, values)]
    with env, torch.no_grad():
        assert "reshape" not in str(jax.make_jaxpr(product)(*arrays))
        found = weights.to("jax") @ values.to("jax")
    torch.testing.assert_close(found.cpu(), weights @ values, atol=1e-5, rtol=0)


def test_keys_and_values_are_written_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places by number are written one by one, and one of them as a copy of the whole cache."""
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    llama().to("jax").generate(**moved(prompts(5)), min_new_tokens=4, max_new_tokens=4)
    files = sorted(tmp_path.glob("*Llama*.mlir"))
    prompt, token = (path.read_text(encoding="utf-8") for path in files)
    assert "stablehlo.dynamic_update_slice" in token
    assert "stablehlo.scatter" not in token
    windows = re.findall(r"#stablehlo.scatter<update_window_dims = \[(.*?)\]", prompt)
    # All of a prompt's at once; none is needed if they fill the cache.
    assert set(windows) <= {"0, 1, 2, 3"}


def test_between_the_calls_of_a_model_torchax_looks_at_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, given, env = llama().to("jax"), moved(prompts(5)), torchax.default_env()
    seen: list[Any] = []

    def looks(new: int) -> int:
        seen.clear()
        model.generate(**given, min_new_tokens=new, max_new_tokens=new)
        return len(seen)

    def count(mode: type, name: str) -> None:
        stock = getattr(mode, name)

        def counted(self: Any, function: Any, *args: Any) -> Any:
            seen.append(function)
            return stock(self, function, *args)

        monkeypatch.setattr(mode, name, counted)

    looks(24)  # compiled
    count(type(env._function_mode), "__torch_function__")
    count(type(env._dispatch_mode), "__torch_dispatch__")
    assert looks(24) - looks(4) <= 2 * 20


def test_what_a_model_is_given_is_taken_apart_for_the_first_tokens_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tpu_runtime.tensors.structures import Structure

    model, given, stock = llama().to("jax"), moved(prompts(5)), Structure._look
    seen: list[Any] = []

    def look(self: Any, value: Any, *rest: Any) -> Any:
        seen.append(value)
        return stock(self, value, *rest)

    def looks(new: int) -> int:
        seen.clear()
        model.generate(**given, min_new_tokens=new, max_new_tokens=new)
        return len(seen)

    looks(24)  # compiled
    monkeypatch.setattr(Structure, "_look", look)
    assert looks(24) == looks(4) > 0


class Pages:
    """What some models write to, and return."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.layers = [Page(keys)]


class Page:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


class Writing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, pages: Pages) -> tuple[torch.Tensor, Pages]:
        pages.layers[0].keys.add_(x)
        return self.layer(pages.layers[0].keys), pages


def test_an_object_that_is_given_is_what_comes_back() -> None:
    here = Writing()
    there = copy.deepcopy(here).to("jax")
    for text in range(2):
        of_cpu, of_device = Pages(batch(9, 2, 4)), Pages(batch(9, 2, 4).to("jax"))
        for number in range(3):
            x = batch(3 * text + number, 2, 4)
            with torch.no_grad():
                found, pages = there(x.to("jax"), of_device)
                expected = here(x, of_cpu)[0]
            assert pages is of_device
            agree(found, expected)
            agree(of_device.layers[0].keys, of_cpu.layers[0].keys)
    assert vars(there)["_tpu_runtime_parts"][" without gradients"].compilations == 1


def test_who_watches_all_modules_may_look_at_what_they_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the recorder of `verify` does."""
    model, seen, stock = llama().to("jax"), list[torch.Tensor](), torch.nn.Module.__call__

    def watched(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self is model:
            seen.append(kwargs["input_ids"].cpu())
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__call__", watched)
    text = model.generate(**moved(prompts(5)), max_new_tokens=4)
    assert torch.equal(torch.cat([ids[:, -1:] for ids in seen[1:]], 1), text[:, -4:-1].cpu())


def test_new_weights_count_in_the_next_call() -> None:
    model, given = llama(), prompts(5)
    on_device = llama().to("jax")
    for seed in (1, 2):
        torch.manual_seed(seed)
        weights = {name: torch.randn_like(w) for name, w in model.state_dict().items()}
        model.load_state_dict(weights)
        on_device.load_state_dict(weights)
        found = on_device.generate(**moved(given), max_new_tokens=4).cpu()
        assert torch.equal(found, model.generate(**given, max_new_tokens=4))
