"""Makes the package's reader of what `teach_reader.py` wrote.

    python benchmarks/package_reader.py --weights reader.npz --output DIR
    python benchmarks/package_reader.py --weights reader.npz --output DIR \
        --calibration CALIBRATION.json

OUTPUT becomes a model directory with MiniLM's towers. Its confidence is the sigmoid of
the reader's score. documents.py, organisations.py and wikipedia_near_misses.py ask it,
confidence.py fits a calibration to their answers. With that, trained_reader.npz is
written, too.
"""

import dataclasses
import json
import pathlib

import numpy as np
import tyro

from realm_tf.answering import calibration as calibrations
from realm_tf.checkpoints import minilm
from realm_tf.checkpoints import trained_reader
from realm_tf.models import model_directory
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader

# It learned from spans of up to 32; the wider half is right for few questions.
_WIDTH, _LENGTH = 16, 320
_EPSILON = 1e-5
PLAIN = calibrations.Calibration(0.0, 1.0, calibrations.LOWEST)
# Name of a layer here to that of transformers.
_LAYERS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "self_attention_layer_norm": "attention.output.LayerNorm",
    "feedforward_intermediate_dense": "intermediate.dense",
    "feedforward_output_dense": "output.dense",
    "feedforward_layer_norm": "output.LayerNorm",
}


def main(
    *,
    weights: str,
    output: str,
    calibration: str | None = None,
    wheel: str | None = None,
):
    """Writes the model, and with a calibration the package's file.

    Args:
        weights: what `teach_reader.py` wrote.
        output: the model directory to make.
        calibration: JSON that `confidence.py` printed.
        wheel: that of `realm init --wheel`.
    """
    fitted = dataclasses.asdict(PLAIN)
    if calibration is not None:
        fitted = json.loads(pathlib.Path(calibration).read_text())
    loaded = minilm.minilm(wheel=wheel)
    with np.load(weights) as file:
        reader = make_reader(loaded.model.reader.encoder, dict(file))
    towers = loaded.model.query_embedder, loaded.model.block_embedder
    model = OpenQa(*towers, reader, score_scale=loaded.model.score_scale)
    loaded = dataclasses.replace(loaded, model=model, calibration=fitted)
    model_directory.save(loaded, output, parameters={"weights": weights})
    if calibration is not None:
        trained_reader.write(reader, fitted, trained_reader.FILE)


def make_reader(encoder, arrays) -> Reader:
    """A reader of the weights of `teach_reader.py`.

    Args:
        encoder: `BertEncoder`, whose weights become the reader's.
        arrays: dict. Name to array.
    """
    reader = Reader(
        encoder,
        max_span_width=_WIDTH,
        layer_norm_epsilon=_EPSILON,
        reads_titles=True,
        max_joint_length=_LENGTH,
        none_span=True,
    )
    values = {}
    for table, name in (
        ("token_embedding/embeddings", "word_embeddings"),
        ("position_embedding/embeddings", "position_embeddings"),
        ("segment_embedding/embeddings", "token_type_embeddings"),
    ):
        values[table] = arrays[f"encoder.embeddings.{name}.weight"]
    ours = {"embeddings_layer_norm": "encoder.embeddings.LayerNorm"}
    for number in range(encoder.num_layers):
        for name, theirs in _LAYERS.items():
            ours[f"transformer_layer_{number}/{name}"] = (
                f"encoder.encoder.layer.{number}.{theirs}"
            )
    for name, theirs in ours.items():
        weight, bias = arrays[f"{theirs}.weight"], arrays[f"{theirs}.bias"]
        is_norm = name.endswith("norm")
        values[f"{name}/{'gamma' if is_norm else 'kernel'}"] = weight.T
        values[f"{name}/{'beta' if is_norm else 'bias'}"] = bias
    for variable in encoder.weights:
        name = variable.path.replace("self_attention_layer/", "")
        # Nothing reads the pooled [CLS].
        if "pooled_dense" not in name:
            variable.assign(values.pop(name).reshape(variable.shape))
    assert not values, values.keys()
    scorer, none = reader.get_layer("span_scorer"), reader.get_layer("none")
    ends = [arrays["start.weight"].T, arrays["end.weight"].T]
    scorer.endpoints.kernel.assign(np.concatenate(ends, axis=1))
    biases = arrays["start.bias"], arrays["end.bias"]
    scorer.endpoints.bias.assign(np.concatenate(biases))
    scorer.layer_norm.gamma.assign(arrays["norm.weight"])
    scorer.layer_norm.beta.assign(arrays["norm.bias"])
    scorer.score.kernel.assign(arrays["out.weight"].T)
    none.kernel.assign(arrays["none.weight"].T)
    none.bias.assign(arrays["none.bias"])
    return reader


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
