"""What operator_audit.py computes on a target and on CPU torch, and whether both agree."""

import functools
import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import audit_variants
import forms

# float32, relative to the value itself and to the largest of the tensor: an operator that is right
# differs by some roundings, a wrong one by its values. Gradients carry one more operator's.
RELATIVE = {"values": 1e-3, "gradients": 3e-3}
TO_LARGEST = 2e-4
LEAST = {"values": 1e-5, "gradients": 5e-4}  # where the true value is 0 of inputs of about 1
WIDER = {"float64": 1e-4, "float16": 10, "bfloat16": 20}  # other dtypes: times this
# Their results are random: they are compared by their own tests.
RANDOM = (
    "dropout", "rrelu", "bernoulli", "normal", "multinomial", "uniform", "exponential", "cauchy",
    "geometric", "rand", "svd_lowrank", "pca_lowrank", "multi_head_attention",
)  # fmt: skip
OF_A_VARIANT = 2  # samples of each
UNDEFINED = ("empty", "new_empty")  # memory without values


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def _stand_in(needed: str, module: str, **attributes: Any) -> None:
    """Let torch's test helpers import ``module``, which OpInfo does not use, without ``needed``."""
    if importlib.util.find_spec(needed) is None:
        made = types.ModuleType(module)
        made.__dict__.update(attributes)
        sys.modules[module] = made


def with_stand_ins() -> None:
    """For what torch's databases of operators and modules import and do not use."""
    _stand_in("expecttest", "expecttest", TestCase=unittest.TestCase)
    _stand_in("setuptools", "torch.utils.cpp_extension")


@cache
def operators() -> dict[str, Any]:
    """The OpInfos that are compared: those of float32 with a result that is no matter of chance."""
    import torch

    with_stand_ins()
    from torch.testing._internal.common_methods_invocations import op_db

    _of_torch.update(op.name for op in op_db if op.op is _by_name(op.name))
    return {
        name_of(op): op
        for op in op_db
        if torch.float32 in op.dtypes
        and not op.name.startswith(UNDEFINED)
        and not any(word in op.name for word in RANDOM if op.name != "nn.functional.normalize")
    }


_of_torch: set[str] = set()  # operators that are what torch has under their names


def _by_name(name: str) -> Any:
    import torch

    return functools.reduce(lambda place, word: getattr(place, word, None), name.split("."), torch)


def _function(op: Any) -> Callable[..., Any]:
    """What computes an operator, which a runtime may have replaced since it was listed."""
    return _by_name(op.name) if op.name in _of_torch else op.op  # type: ignore[no-any-return]


def _tensors(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _weights(shape: Any, number: int) -> Any:
    """What an output is multiplied by before it is summed, so that its elements count apart."""
    import torch

    places = torch.arange(torch.Size(shape).numel(), dtype=torch.float32)
    return (torch.cos(places * 1.3 + number) + 0.5).reshape(shape)


def _numpy(tensor: Any) -> Any:
    import numpy as np
    import torch

    if hasattr(tensor, "jax"):
        array = np.asarray(tensor.jax())
        return array.astype(np.float32) if tensor.dtype == torch.bfloat16 else array
    tensor = tensor.detach()
    if tensor._is_zerotensor():  # a gradient of zeros without memory
        tensor = torch.zeros_like(tensor)
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def differs(result: Any, expected: Any, what: str, wider: float = 1) -> str:
    """Why ``result`` is not ``expected``, or the empty string."""
    import numpy as np

    if result.shape != expected.shape:
        return f"shape {result.shape} instead of {expected.shape}"
    if expected.size == 0:
        return ""
    if not np.issubdtype(expected.dtype, np.inexact):
        return "" if np.array_equal(result, expected) else "other integers"
    finite = np.isfinite(expected)
    largest = float(np.abs(expected[finite]).max()) if finite.any() else 0.0
    near = wider * (TO_LARGEST * largest + LEAST[what])
    if np.allclose(result, expected, rtol=RELATIVE[what] * wider, atol=near, equal_nan=True):
        return ""
    if not np.array_equal(np.isfinite(result), finite):
        return "not finite in other places"
    with np.errstate(all="ignore"):
        off = np.nanmax(np.abs(result - expected))
    return f"off by {off:.2g} of {largest:.2g}"


def tensor_differs(result: Any, expected: Any, what: str, narrowed: dict[Any, Any]) -> str:
    on_cpu = result.device.type == "cpu"  # as is what was made of a number
    dtype = expected.dtype if on_cpu else narrowed.get(expected.dtype, expected.dtype)
    if result.dtype != dtype:
        return f"{result.dtype} instead of {dtype}"
    wider = WIDER.get(str(dtype).removeprefix("torch."), 1)
    return differs(_numpy(result), _numpy(expected), what, wider)


class Sample:
    """Something that is computed of tensors, and what CPU torch gives for it.

    ``compute`` gets the leaves and the word of a device, or None, and returns tensors. Where torch
    raises, so must a target: else it would be silent.
    """

    def __init__(
        self,
        compute: Callable[[list[Any], Any], list[Any]],
        leaves: list[Any],
        label: str = "",
        variant: str = audit_variants.AS_GIVEN,
    ) -> None:
        import torch

        self.compute = compute
        self.leaves = leaves
        self.label = label
        self.variant = variant
        self.error: Exception | None = None
        own = self._own(lambda tensor: tensor)
        try:
            self.wanted = compute(own, None)
        except Exception as error:
            self.error = error
            return
        if any(tensor.layout is not torch.strided for tensor in (*self.wanted, *_tensors(own))):
            raise TypeError("a sparse tensor")
        self.inputs = [
            n for n, leaf in enumerate(own) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        self.outputs = [n for n, t in enumerate(self.wanted) if t.requires_grad]
        try:
            self.gradients = self._gradients(own, self.wanted, lambda t: t)
        except RuntimeError:  # torch itself cannot: values are compared alone
            self.outputs = []
            self.gradients = []

    def _own(self, move: Any) -> list[Any]:
        """The leaves, those that are tensors as own ones where they are moved to."""
        import torch

        return [
            move(leaf.detach().clone()).requires_grad_(leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in self.leaves
        ]

    def _gradients(self, leaves: list[Any], outputs: list[Any], move: Any) -> Any:
        import torch

        if not self.outputs:
            return []
        sums = ((outputs[n] * move(_weights(outputs[n].shape, n))).sum() for n in self.outputs)
        loss = sum(total.real + 2 * total.imag if total.is_complex() else total for total in sums)
        inputs = [leaves[n] for n in self.inputs]
        return torch.autograd.grad(loss, inputs, allow_unused=True)

    def judge(self, device: Any) -> tuple[str, str]:
        """(verdict, explanation) of the same on the device."""
        own = self._own(device.move)
        device.compute()  # the leaves are no constants of a program
        if self.error is not None:
            try:
                for result in self.compute(own, device.word):
                    _numpy(result)
            except Exception:
                return "right", ""
            return "does not raise", f"torch: {type(self.error).__name__}: {self.error}"
        results = self.compute(own, device.word)
        if len(results) != len(self.wanted):
            return "wrong values", f"{len(results)} results instead of {len(self.wanted)}"
        trains = all(results[n].requires_grad for n in self.outputs)
        gradients, error = [], None
        try:
            gradients = self._gradients(own, results, device.move) if trains else []
        except Exception as raised:  # after the values, which count for more
            error = raised
        device.compute()
        for result, expected in zip(results, self.wanted, strict=True):
            if why := tensor_differs(result, expected, "values", device.narrowed):
                return "wrong values", why
        if not trains:
            return "no gradient", "the result does not require grad"
        if error:
            raise error
        for gradient, expected in zip(gradients, self.gradients, strict=True):
            if gradient is None and expected is None:
                continue
            if gradient is None or expected is None:
                other = expected if gradient is None else gradient
                if abs(_numpy(other)).max(initial=0) > 0:
                    return "wrong gradient", "None instead of values, or values instead of None"
            elif why := tensor_differs(gradient, expected, "gradients", device.narrowed):
                return "wrong gradient", why
        return "right", ""


def _is_device(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu")


def _sample_of_operator(op: Any, sample: Any, label: str, variant: str) -> Sample:
    from torch.utils import _pytree as pytree

    if sample.kwargs.get("dropout_p"):
        raise ValueError("a matter of chance")
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))

    def compute(own: list[Any], word: str | None) -> list[Any]:
        if word:
            own = [word if _is_device(leaf) else leaf for leaf in own]
        if variant == audit_variants.STRIDED:
            own = [audit_variants.strided(leaf) for leaf in own]
        args, kwargs = pytree.tree_unflatten(own, spec)
        if word and "device" in kwargs:
            kwargs["device"] = word
        # Of what torch leaves open, such as the signs of eigenvectors, what is determined.
        return _tensors(sample.output_process_fn_grad(_function(op)(*args, **kwargs)))

    return Sample(compute, leaves, label, variant)


def samples_of_operator(name: str, most: int, dtype: str) -> Iterator[Sample]:
    """Of those that CPU torch can compute at most ``most``, evenly spread, and variants of some."""
    import torch

    op = operators()[name]
    if getattr(torch, dtype) not in op.dtypes:
        return
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=op.supports_autograd)
    samples = list(itertools.islice(made, most * 6))
    step = max(1, len(samples) // most)
    chosen = samples[::step][:most]
    for sample in chosen:
        if found := _computed(op, sample, dtype, audit_variants.AS_GIVEN):
            yield found
    left = dict.fromkeys(audit_variants.VARIANTS, OF_A_VARIANT)
    for sample in chosen:
        # Of several ways to make a variant, torch accepts one, or they are the same.
        once = set()
        for which, other in audit_variants.variants(op, _function(op), sample):
            if which in once or not left[which]:
                continue
            if found := _computed(op, other, dtype, which):
                once.add(which)
                left[which] -= 1
                yield found


def _computed(op: Any, sample: Any, dtype: str, variant: str) -> Sample | None:
    """What CPU torch computes of a sample; None where it cannot."""
    label = dtype if variant == audit_variants.AS_GIVEN else f"{dtype}, {variant}"
    try:
        found = _sample_of_operator(op, sample, f"{label}:", variant)
    except Exception:
        return None
    return None if found.error else found


def samples_of_form(text: str) -> Iterator[Sample]:
    for group in forms.FORMS[text]:
        for label, leaves in forms.inputs(group):
            sample = Sample(lambda own, word: forms.run(text, own), leaves, label)
            if not isinstance(sample.error, NotImplementedError):  # a dtype that only CPUs lack
                yield sample


def samples_of(name: str, most: int, dtypes: Sequence[str]) -> Iterator[Sample]:
    """Of an operator at most ``most`` of each dtype; of a form all."""
    if name in forms.FORMS:
        yield from samples_of_form(name)
    else:
        for dtype in dtypes:
            yield from samples_of_operator(name, most, dtype)
