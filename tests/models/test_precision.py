import keras
import numpy as np
import pytest
from keras import ops

from realm_tf.models import precision
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


@pytest.fixture
def unasked():
    """As in a process that has not been asked yet."""
    precision._chosen.cache_clear()
    yield
    precision._chosen.cache_clear()


@pytest.mark.skipif(not IS_TENSORFLOW, reason="JAX has no fast one on CPUs")
@pytest.mark.parametrize(
    ("flags", "limit", "expected"),
    [
        ("fpu avx2 avx512f", None, "float32"),
        ("fpu avx2 avx512_bf16 avx512f", None, "bfloat16"),
        ("fpu amx_bf16 amx_tile", "AVX512_CORE_AMX", "bfloat16"),
        ("fpu amx_bf16 amx_tile", "AVX512_CORE_VNNI", "float32"),
        # Not Linux.
        (None, None, "float32"),
    ],
)
def test_auto_asks_the_cpu(
    tmp_path, monkeypatch, unasked, capsys, flags, limit, expected
):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    info = tmp_path / "cpuinfo"
    if flags:
        info.write_text(f"processor : 0\nflags\t\t: {flags}\n\n")
    monkeypatch.setattr(precision, "_CPU_INFO", str(info))
    monkeypatch.setattr(precision.glob, "glob", lambda _: [])
    with precision.computing_in("auto"):
        policy = keras.layers.Dense(1).dtype_policy
    assert policy.compute_dtype == precision.resolve("auto") == expected
    assert policy.variable_dtype == precision.resolve("float32") == "float32"
    assert keras.config.dtype_policy().name == "float32"
    # However often it was asked.
    assert capsys.readouterr().err.count("bfloat16") == (expected == "bfloat16")


@pytest.mark.parametrize(
    ("missing", "limit", "expected"),
    [
        ((), None, True),
        ((), "AVX512_CORE", True),
        ((), "AVX2", False),
        (("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"), None, False),
        # Knights Landing.
        (("AVX512BW", "AVX512DQ", "AVX512VL"), None, False),
    ],
)
def test_onednn_asks_the_cpu(monkeypatch, missing, limit, expected):
    from numpy._core._multiarray_umath import __cpu_features__

    for name in ("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"):
        monkeypatch.setitem(__cpu_features__, name, name not in missing)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert precision.onednn_has_avx512() is expected


@pytest.mark.skipif(IS_TENSORFLOW, reason="of the JAX backend")
@pytest.mark.parametrize(
    ("platform", "capability", "expected"),
    [
        ("cpu", None, "float32"),
        ("tpu", None, "bfloat16"),
        ("gpu", "7.5", "float32"),
        ("gpu", "8.0", "bfloat16"),
        ("gpu", "12.0", "bfloat16"),
    ],
)
def test_auto_asks_jax(monkeypatch, unasked, platform, capability, expected):
    import jax

    class Device:
        compute_capability = capability

    Device.platform = platform
    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    assert precision.resolve("auto") == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda encoder: Embedder(encoder, projection_dim=6),
        lambda encoder: Embedder(
            encoder, pooling="mean", projection_dim=None, normalize=True
        ),
        lambda encoder: Reader(
            encoder, span_hidden_dim=4, max_span_width=3, none_span=True
        ),
        lambda encoder: Reader(encoder, span_hidden_dim=0, max_span_width=3),
        KnowledgeAugmentedEncoder,
    ],
    ids=["projected", "mean", "reader", "endpoints", "masked-lm"],
)
def test_what_is_added_up_is_float32(
    make, make_encoder, token_batch, randomize
):
    model = make(make_encoder())
    randomize(model)
    with precision.computing_in("bfloat16"):
        other = make(make_encoder())
    other.set_weights(model.get_weights())
    if isinstance(other, Embedder):
        assert other.copy().encoder.compute_dtype == "bfloat16"
    # Beside them only the seeds of dropout.
    assert {v.dtype for v in other.trainable_variables} == {"float32"}
    inputs = token_batch
    if isinstance(other, KnowledgeAugmentedEncoder):
        inputs = {**inputs, "mask_positions": np.array([[1, 5], [1, 0]])}
    expected, found = np.asarray(model(inputs)), other(inputs)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    # Not rounded to the 8 bits of bfloat16 on the way either.
    rounded = ops.cast(ops.cast(found, "bfloat16"), "float32")
    assert np.mean(np.asarray(found) == np.asarray(rounded)) < 0.1
    np.testing.assert_allclose(
        np.asarray(found), expected, atol=0.05 * np.abs(expected).max()
    )
    assert np.abs(np.asarray(found) - expected).max() > 0


def test_attentions_softmax_is_float32(make_encoder, token_batch, monkeypatch):
    dtypes = []
    softmax = ops.softmax

    def seen(scores):
        dtypes.append(keras.backend.standardize_dtype(scores.dtype))
        return softmax(scores)

    monkeypatch.setattr(ops, "softmax", seen)
    with precision.computing_in("bfloat16"):
        encoder = make_encoder()
    found = encoder(token_batch)["sequence_output"]
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    assert set(dtypes) == {"float32"}
