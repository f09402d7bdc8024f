"""The versions of torch and torchax that this package supports; others raise at import."""

from importlib import metadata

import numpy as np

SUPPORTED_TORCHAX = ("0.0.13",)
# torch 2.9 is what the fixes were tested on; torchax 0.0.13 cannot be imported on 2.13 or later.
OLDEST_TORCH, FIRST_BROKEN_TORCH = (2, 9), (2, 13)


def check() -> None:
    """Raise RuntimeError or ImportError that names what to install, unless the versions match."""
    install = "pip install 'torch==2.9.0' 'torchax==0.0.13' 'jax==0.10.2'"
    import torch

    torch_version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not OLDEST_TORCH <= torch_version < FIRST_BROKEN_TORCH:
        raise RuntimeError(
            f"tpu_runtime (torchax) needs torch 2.9 to 2.12, found {torch.__version__}: {install}"
        )
    drawn = np.random.get_state(legacy=False)
    try:
        import torchax
    except Exception as error:  # a damaged torchax raises AttributeError and others
        raise ImportError(
            f"tpu_runtime (torchax) cannot import torchax ({type(error).__name__}: {error}): "
            f"{install}"
        ) from error
    finally:
        np.random.set_state(drawn)  # JAX 0.10 draws five NumPy random numbers at import
    try:
        recorded = metadata.version("torchax")
    except metadata.PackageNotFoundError:
        recorded = torchax.__version__
    if recorded != torchax.__version__:
        # The torch_xla 2.9.0 wheel carries its own torchax 0.0.6 and overwrites the real one.
        raise RuntimeError(
            f"torchax is damaged: its files are version {torchax.__version__}, its metadata say "
            f"{recorded} (torch_xla overwrites torchax); use an environment without torch_xla: "
            f"pip uninstall -y torch_xla torchax && {install}"
        )
    if recorded not in SUPPORTED_TORCHAX:
        raise RuntimeError(
            f"tpu_runtime (torchax) supports torchax {', '.join(SUPPORTED_TORCHAX)}, "
            f"found {recorded}: {install}"
        )
