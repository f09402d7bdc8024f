"""A kernel in Pallas that a person has to write, and the function that launches it."""

SKELETON = """{begin}import jax
from jax.experimental import pallas as pl
from torchax.interop import call_jax


def {kernel}({references}):
    raise NotImplementedError("{kernel}: to be written in Pallas")


def launch({arrays}):
    written = None  # to be written: a jax.ShapeDtypeStruct for each of {written}
    interpret = jax.default_backend() != "tpu"
    return pl.pallas_call({kernel}, out_shape=written, interpret=interpret)({arrays})


def {name}({parameters}):
    # call_jax(launch, {arrays}) gives arrays of JAX to launch, and returns tensors
    raise NotImplementedError("{kernel}: to be written in Pallas")
{check}"""
