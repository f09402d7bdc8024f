"""Lightning with ranks that torchrun has started: its strategy "ddp" on this target."""

from typing import Any

from ..distributed.ddp import DistributedDataParallel, join


def _redirect(model: Any, module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a step with `run`: Lightning calls it through `forward`, which is compiled."""
    return model.run(getattr(module, name), *args, **kwargs)


def of_ranks(compiles: bool, base: Any) -> Any:
    """The strategy "ddp" with ranks of this target.

    ``compiles``: a model that is called is compiled as a whole.
    """

    class TpuRanksStrategy(base):  # type: ignore[misc]
        strategy_name = "ddp"

        def setup_environment(self) -> None:
            join()
            super().setup_environment()

        def _setup_model(self, module: Any) -> Any:
            if compiles:
                self._forward_redirection = _redirect
            return DistributedDataParallel(module, **self._ddp_kwargs)

        setup_module = _setup_model  # Fabric's name for it

        def pre_backward(self, *_: Any) -> None:
            """Stock prepares torch's own exchange here."""

        post_backward = pre_backward

    return TpuRanksStrategy
