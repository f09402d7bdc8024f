"""The versions of torch and torch_xla that this package supports; others raise at import."""

from importlib import metadata

SUPPORTED = "2.9"
INSTALL = "pip install 'torch==2.9.0' 'torch_xla[tpu]==2.9.0'"


def check() -> None:
    """Raise RuntimeError or ImportError that names what to install, unless the versions match."""
    import torch

    try:
        import torch_xla.runtime  # noqa: F401
    except Exception as error:  # a torch_xla for another torch raises for undefined symbols
        raise ImportError(
            f"tpu_runtime (torch_xla) cannot import torch_xla beside torch {torch.__version__} "
            f"({type(error).__name__}: {error}): {INSTALL}"
        ) from error
    for name, version in (
        ("torch", torch.__version__),
        ("torch_xla", metadata.version("torch_xla")),
    ):
        if not str(version).startswith(SUPPORTED + "."):
            raise RuntimeError(
                f"tpu_runtime (torch_xla) needs {name} {SUPPORTED}, found {version}: {INSTALL}"
            )
