"""In which precision models compute: float32, or bfloat16 where it is fast."""

import contextlib
import contextvars
import functools
import glob
import os
import pathlib
import sys
from typing import Literal

# The platform that steps are compiled for, if they are not run, and Keras'
# scope in which variables get no values.
_ONLY_COMPILED = contextvars.ContextVar("only_compiled", default=(None, None))


def accelerator() -> str | None:
    """`"gpu"` or `"tpu"` with Keras' JAX backend on one, else `None`."""
    platform = _ONLY_COMPILED.get()[0] or _platform()
    return None if platform == "cpu" else platform


@functools.cache
def _platform():
    import keras

    if keras.backend.backend() != "jax":
        return "cpu"
    import jax

    return jax.devices()[0].platform


@contextlib.contextmanager
def only_compiled(platform: str):
    """Models made inside have shapes and no weights (JAX).

    Their steps can be compiled, for devices that are not there and tables
    larger than the memory, and not run.

    Args:
        platform: str. `"cpu"`, `"gpu"` or `"tpu"`.
    """
    import keras

    scope = keras.StatelessScope(initialize_variables=False)
    token = _ONLY_COMPILED.set((platform, scope))
    try:
        with scope:
            yield
    finally:
        _ONLY_COMPILED.reset(token)


def is_only_compiled() -> bool:
    """Whether variables get no values; see `only_compiled`."""
    return _ONLY_COMPILED.get()[0] is not None


@contextlib.contextmanager
def with_values():
    """Variables made inside have values in any case.

    Keras makes those of a number, such as an optimizer's steps, in no other
    way.
    """
    import keras

    _, scope = _ONLY_COMPILED.get()
    if scope is None:
        yield
        return
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    scope.__exit__()
    try:
        yield
    finally:
        scope.__enter__()
        keras.distribution.set_distribution(distribution)


FLOAT32, BFLOAT16 = "float32", "bfloat16"
Precision = Literal["auto", "float32", "bfloat16"]

# Instructions that multiply bfloat16, as Linux names them (AVX-512 since Cooper
# Lake and Zen 4, AMX since Sapphire Rapids).
_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_CPU_INFO = "/proc/cpuinfo"
# Limits the instructions of oneDNN, which computes for TensorFlow.
_ONEDNN_LIMIT = "ONEDNN_MAX_CPU_ISA"
_WITHOUT_AVX512 = frozenset({"SSE41", "AVX", "AVX2", "AVX2_VNNI"})
_WITHOUT_BFLOAT16 = _WITHOUT_AVX512 | {"AVX512_CORE", "AVX512_CORE_VNNI"}
# oneDNN's `avx512_core`, as NumPy names its parts.
_AVX512_CORE = ("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL")
# Ampere, the first of NVIDIA's GPUs with bfloat16 in its tensor cores.
_CUDA_CAPABILITY = (8, 0)


def resolve(precision: Precision) -> str:
    """Resolves `"auto"` for this machine and backend.

    It is `"bfloat16"` on a TPU (JAX), on a GPU and, with the TensorFlow
    backend, on a CPU that multiplies it in hardware; a process reports this
    once. XLA, and so the JAX backend, has no fast bfloat16 product on CPUs.

    Args:
        precision: str. `"auto"`, `"float32"` or `"bfloat16"`.

    Returns:
        `"float32"` or `"bfloat16"`.
    """
    return _fast_here() if precision == "auto" else precision


def onednn_has_avx512() -> bool:
    """Whether oneDNN uses AVX-512, which its bfloat16 operations need.

    NumPy asks the processor itself, so that an emulated one counts as well.
    """
    from numpy._core._multiarray_umath import __cpu_features__

    return os.environ.get(_ONEDNN_LIMIT) not in _WITHOUT_AVX512 and all(
        __cpu_features__.get(name, False) for name in _AVX512_CORE
    )


@contextlib.contextmanager
def computing_in(precision: Precision, *, for_training: bool = True):
    """Sets the precision of the models that are made inside.

    Everything after the Transformer layers stays float32: embeddings, scores of
    spans, logits of wordpieces, losses.

    Args:
        precision: str. `"auto"`, `"float32"` or `"bfloat16"`.
        for_training: bool. Keep all weights in float32, which small steps
            need; without, layers that compute in bfloat16 hold their weights
            in it. Results are the same, weights take half of the memory, and
            no call casts them. Defaults to `True`.
    """
    import keras

    before = keras.config.dtype_policy()
    is_float32 = resolve(precision) == FLOAT32
    bfloat16 = "mixed_bfloat16" if for_training else BFLOAT16
    keras.config.set_dtype_policy(FLOAT32 if is_float32 else bfloat16)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _fast_here():
    import keras

    is_jax = keras.backend.backend() == "jax"
    return _chosen(_jax_is_fast() if is_jax else _tensorflow_is_fast())


def resolve_for_graphs() -> str:
    """`resolve("auto")` of TensorFlow's graphs, whatever Keras' backend is.

    Reports nothing: who asks has no other choice.
    """
    return BFLOAT16 if _tensorflow_is_fast() else FLOAT32


@functools.cache
def _chosen(is_fast):
    if not is_fast:
        return FLOAT32
    print(
        "encoders compute in bfloat16, as this processor does in hardware "
        "(--precision float32 for the other)",
        file=sys.stderr,
    )
    return BFLOAT16


def _jax_is_fast():
    if accelerator() != "gpu":
        return accelerator() == "tpu"
    import jax

    capability = jax.devices()[0].compute_capability
    return _is_new_enough(capability.split("."))


def _tensorflow_is_fast():
    # TensorFlow takes seconds to import, and a plan asks, too.
    if glob.glob("/dev/nvidia[0-9]*"):
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            return _is_new_enough(details["compute_capability"])
    if os.environ.get(_ONEDNN_LIMIT) in _WITHOUT_BFLOAT16:
        return False
    path = pathlib.Path(_CPU_INFO)
    # Other systems than Linux have no such file.
    flags = path.read_text().split() if path.exists() else ()
    return not _CPU_FLAGS.isdisjoint(flags)


def _is_new_enough(capability):
    return tuple(map(int, capability)) >= _CUDA_CAPABILITY
