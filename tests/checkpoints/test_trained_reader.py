import keras
import numpy as np
import pytest

from realm_tf.checkpoints import trained_reader
from realm_tf.errors import InputError
from realm_tf.models.reader import Reader


def _reader(make_encoder, randomize, *, seed, **arguments):
    """A reader whose tables are the same for every seed."""
    reader = Reader(make_encoder(num_layers=2), span_hidden_dim=6, **arguments)
    tables = [
        reader.encoder.get_layer(name).get_weights()
        for name in trained_reader._FROZEN
    ]
    randomize(reader, seed=seed)
    for name, weights in zip(trained_reader._FROZEN, tables, strict=True):
        reader.encoder.get_layer(name).set_weights(weights)
    return reader


def test_what_was_written_is_assigned(
    make_encoder, randomize, token_batch, tmp_path, monkeypatch
):
    one = _reader(
        make_encoder, randomize, seed=1, reads_titles=True, max_joint_length=30
    )
    two = _reader(make_encoder, randomize, seed=2)
    path = tmp_path / "reader.npz"
    trained_reader.write(one, str(path))
    monkeypatch.setattr(trained_reader, "FILE", path)
    before = keras.ops.convert_to_numpy(two(token_batch))
    trained_reader.assign(two)
    expected, found = (
        keras.ops.convert_to_numpy(reader(token_batch)) for reader in (one, two)
    )
    # 7 bits of each weight and its sign.
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < 0.05 * scale
    assert np.abs(found - expected).max() > 0
    assert np.abs(before - expected).max() > 0.2 * scale
    assert two.reads_titles
    assert two.max_joint_length == 30


def test_other_tables_are_refused(
    make_encoder, randomize, tmp_path, monkeypatch
):
    path = tmp_path / "reader.npz"
    trained_reader.write(_reader(make_encoder, randomize, seed=1), str(path))
    monkeypatch.setattr(trained_reader, "FILE", path)
    other = Reader(make_encoder(seed=5), span_hidden_dim=6)
    before = other.get_weights()
    with pytest.raises(InputError, match="MiniLM's own embedding tables"):
        trained_reader.assign(other)
    for one, two in zip(before, other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
