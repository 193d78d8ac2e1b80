import keras
import numpy as np

from realm_tf.checkpoints import trained_reader
from realm_tf.models.reader import Reader


def test_what_was_written_is_assigned(
    make_encoder, randomize, token_batch, tmp_path, monkeypatch
):
    one, two = (
        Reader(make_encoder(num_layers=2), span_hidden_dim=6) for _ in range(2)
    )
    for seed, reader in enumerate((one, two)):
        randomize(reader, seed=seed)
    # Embedding tables are not in the file.
    for ours, theirs in zip(
        one.encoder.layers, two.encoder.layers, strict=True
    ):
        if "embedding" in ours.name:
            theirs.set_weights(ours.get_weights())
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
    assert two.max_joint_length == 320
