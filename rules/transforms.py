"""torch.func: functions that transform other functions."""

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Keep,
    Report,
    Rule,
    Safety,
    targets,
)

TRANSFORMS = Rule(
    code="RUN005",
    name="function-transforms",
    summary="torch.func's transformations, which not every target can run",
    why="""`vmap`, `grad` and similar functions wrap tensors in C++. torchax's tensors are already
wrapped, in Python, so the first operator inside raises an error. `functional_call` and
`stack_module_state` run on every target, and so do `torch.autograd.functional.jacobian` and
`hessian`.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    references=("https://docs.pytorch.org/docs/stable/func.html",),
    examples=(
        Example(
            """
            import torch

            def per_sample(loss, parameters, x, y):
                return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, y)
            """,
        ),
        Example(
            """
            import torch
            y = torch.func.functional_call(model, parameters, (x,))
            """,
        ),
    ),
)

_MADE = ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian", "jvp", "vjp", "linearize",
         "functionalize")  # fmt: skip


@TRANSFORMS.on(
    "name", "torch.vmap", *(f"{module}.{made}" for module in ("torch.func", "functorch")
                            for made in _MADE)
)  # fmt: skip
def made(ctx: Context, found: Construct) -> Decision:
    name = found.key.rpartition(".")[2]
    if ctx.api.transforms and name == "linearize":
        return Report("gives zeros on the device, or fails: use torch.func.jvp at each tangent")
    if ctx.api.transforms and name != "functionalize":
        return Keep("runs on the device")
    others = "".join(f"{t.name}, or " for t in targets().values() if t.api.transforms)
    others = others if name != "functionalize" else ""
    return Report(
        f"does not run on tensors of the device: {others}use a loop over the samples, "
        "or torch.autograd.functional.jacobian and hessian"
    )
