"""What is refused; tests of `realm init` and `realm import` compare values."""

import json
import pathlib

import numpy as np
import pytest

from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.tensor_files import open_torch_file
from realm_tf.errors import InputError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_bert"
CONFIG = json.loads((GOLDEN / "config.json").read_text())


@pytest.fixture
def tensors():
    """Of a BertForPreTraining of two layers."""
    file = open_torch_file(str(GOLDEN / "pytorch_model.bin"))
    return {name: file.read(name) for name in file.names()}


def _source(tensors, **config):
    opened = Tensors(tensors, "file.safetensors")
    return hugging_face.source_of(CONFIG | config, opened)


def _make(tensors, part="bert"):
    return _source(tensors).makers[part]()


def test_a_tensor_of_no_part_is_named(tensors):
    tensors = {f"t5.{name}": value for name, value in tensors.items()}
    with pytest.raises(InputError, match=r"of the model takes: t5\.bert"):
        _source(tensors)


def test_what_is_left_out_is_counted(tensors):
    tensors["bert.embeddings.position_ids"] = np.arange(9)[None]
    source = _source(tensors)
    kinds = ("decoder", "seq_relationship", "position_ids")
    left_out = [n for n in tensors if any(kind in n for kind in kinds)]
    assert sorted(source.unread) == sorted(left_out)


def test_a_head_that_is_not_tied_is_refused(tensors):
    source = _source(tensors, tie_word_embeddings=False)
    with pytest.raises(InputError, match="head that is not tied"):
        source.makers["encoder"]()


@pytest.mark.parametrize("theirs", ["gelu_new", "gelu_pytorch_tanh"])
def test_a_config_becomes_the_encoders_arguments(theirs):
    """Other activations and sizes are compared by outputs."""
    changes = {"hidden_act": theirs, "hidden_dropout_prob": 0.2}
    text = json.dumps(CONFIG | changes)
    config = hugging_face.read_config(text, source="config.json")
    found = hugging_face.encoder_config(config)
    assert found["activation"] == "gelu_approximate"
    assert found["dropout"] == 0.2
    assert found["layer_norm_epsilon"] == CONFIG["layer_norm_eps"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hidden_act": ', "config.json is not JSON"),
        (
            json.dumps(CONFIG | {"hidden_act": "relu"}),
            "hidden_act 'relu' is not one of",
        ),
        (
            json.dumps(CONFIG | {"model_type": "roberta"}),
            "is of a roberta, .* expected bert, realm or mpnet",
        ),
        (
            json.dumps({"hidden_act": "gelu", "model_type": "t5"}),
            "it lacks hidden_dropout_prob, hidden_size, .*, vocab_size",
        ),
    ],
)
def test_another_config_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        hugging_face.read_config(text, source="config.json")
