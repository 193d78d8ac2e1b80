import keras
import numpy as np
import pytest

from realm_tf.checkpoints import trained_reader
from realm_tf.models.reader import Reader

# Those of a `Calibration`.
CALIBRATION = {"bias": -1.5, "weight": 0.5, "least_confidence": 0.25}


@pytest.mark.parametrize("with_tables", [True, False])
def test_what_was_written_is_made(
    with_tables, make_encoder, randomize, token_batch, tmp_path, monkeypatch
):
    one = Reader(
        make_encoder(num_layers=2),
        span_hidden_dim=6,
        max_span_width=5,
        layer_norm_epsilon=1e-5,
        reads_titles=True,
        max_joint_length=320,
        none_span=True,
    )
    randomize(one, seed=0)
    encoder = make_encoder(num_layers=2)
    randomize(encoder, seed=1)
    if not with_tables:
        for ours, theirs in zip(
            one.encoder.layers, encoder.layers, strict=True
        ):
            if "embedding" in ours.name:
                theirs.set_weights(ours.get_weights())
    path = tmp_path / "reader.npz"
    # Tables of this test are small.
    monkeypatch.setattr(trained_reader, "_SMALL", 20)
    monkeypatch.setattr(trained_reader, "_GROUP", 2)
    trained_reader.write(one, CALIBRATION, path, with_tables=with_tables)
    monkeypatch.setattr(trained_reader, "FILE", path)
    with np.load(path) as file:
        kinds = {name: file[name].dtype for name in file}
    kinds.pop("options")
    kinds = {n: k for n, k in kinds.items() if not n.endswith(":scale")}
    assert ("token_embedding/0" in kinds) == with_tables
    assert set(kinds.values()) == {np.dtype("int8"), np.dtype("float32")}
    assert kinds["transformer_layer_1/0"] == np.dtype("int8")
    if with_tables:
        assert kinds["token_embedding/0"] == np.dtype("int8")
    before = Reader(encoder, **_arguments(one))
    before = keras.ops.convert_to_numpy(before(token_batch))
    two = trained_reader.make(encoder)
    assert _arguments(two) == _arguments(one)
    assert trained_reader.calibration() == CALIBRATION
    expected, found = (
        keras.ops.convert_to_numpy(reader(token_batch)) for reader in (one, two)
    )
    # 7 bits of each weight and its sign.
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < 0.05 * scale
    assert np.abs(found - expected).max() > 0
    assert np.abs(before - expected).max() > 0.2 * scale


def _arguments(reader):
    config = reader.get_config()
    return {k: v for k, v in config.items() if k not in ("encoder", "name")}


def test_a_row_keeps_its_size(make_encoder, randomize, tmp_path, monkeypatch):
    """A rare word's embedding is smaller than others."""
    reader = Reader(make_encoder(), span_hidden_dim=6)
    randomize(reader)
    table = reader.encoder.get_layer("token_embedding").weights[0]
    sizes = np.logspace(-3, 1, table.shape[0])[:, None]
    table.assign(np.asarray(table) * sizes)
    monkeypatch.setattr(trained_reader, "_SMALL", 20)
    monkeypatch.setattr(trained_reader, "_GROUP", 2)
    monkeypatch.setattr(trained_reader, "FILE", tmp_path / "reader.npz")
    trained_reader.write(reader, None, trained_reader.FILE)
    found = trained_reader.make(make_encoder())
    found = np.asarray(found.encoder.get_layer("token_embedding").weights[0])
    largest = np.abs(np.asarray(table)).max(axis=1, keepdims=True)
    assert np.all(np.abs(found - table) <= 0.51 / 127 * largest)
    assert trained_reader.calibration() is None
