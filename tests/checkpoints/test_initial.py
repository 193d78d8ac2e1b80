"""`realm init --from` files: each BERT's outputs, against its own library."""

import json
import pathlib
import shutil

import keras
import keras_hub
import numpy as np
import pytest
import safetensors.numpy
from init_runs import init
from named_weights import HEADS
from named_weights import VOCABULARY
from named_weights import random_arrays
from named_weights import save_tf
from named_weights import weights
from tf1_world import PARTS
from tf1_world import check_encoder

from realm_tf import cli
from realm_tf.checkpoints.tensor_files import open_torch_file

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_bert"
TOLERANCE = {"atol": 2e-6, "rtol": 1e-5}


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDEN / "outputs.npz") as file:
        return dict(file)


def _init(tmp_path, kind, source, *more):
    return init(source, tmp_path / "model", *more, kind=kind)


def _inputs(goldens):
    names = ("token_ids", "segment_ids", "padding_mask")
    return {name: goldens[name].astype("int32") for name in names}


def _check_encoder(
    encoder, goldens, names=("sequence_output", "pooled_output")
):
    outputs = encoder(_inputs(goldens))
    is_word = goldens["padding_mask"].astype(bool)
    for name in names:
        found, expected = np.asarray(outputs[name]), goldens[name]
        if name == "sequence_output":
            found, expected = found[is_word], expected[is_word]
        np.testing.assert_allclose(found, expected, **TOLERANCE)


def _check_logits(model, goldens):
    rows, length = goldens["token_ids"].shape
    positions = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    logits = model.knowledge_augmented_encoder(
        {**_inputs(goldens), "mask_positions": positions}
    )
    is_word = goldens["padding_mask"].astype(bool)
    np.testing.assert_allclose(
        np.asarray(logits)[is_word], goldens["logits"][is_word], **TOLERANCE
    )


def test_hugging_face_with_its_head(goldens, tmp_path):
    loaded = _init(tmp_path, "hf", GOLDEN)
    model = loaded.model
    assert model.reader.encoder.activation == "gelu"
    for encoder in (model.query_embedder.encoder, model.reader.encoder):
        _check_encoder(encoder, goldens)
    _check_logits(model, goldens)
    assert model.embedding_dim == 128 and model.score_scale == 1
    assert loaded.card.sources[0][0].endswith("pytorch_model.bin")


def test_hugging_faces_hub(goldens, tmp_path, hub):
    """Of several files with the same weights one is fetched."""
    hub.add("google-bert/tiny", _written(tmp_path, dict))
    more = ("pytorch_model.bin", "tf_model.h5", "tokenizer.json")
    hub.repos["google-bert/tiny"].update(dict.fromkeys(more, b"?"))
    loaded = _init(tmp_path, "hf", "hf://google-bert/tiny")
    _check_encoder(loaded.model.reader.encoder, goldens)
    expected = ["config.json", "model.safetensors", "tokenizer.json"]
    assert hub.files_sent() == [*expected, "vocab.txt"]
    (path, _), *more = loaded.card.sources
    assert path == "hf://google-bert/tiny/model.safetensors" and not more


def _old_names(tensors):
    """As the oldest files have them, such as bert-base-uncased's."""
    kinds = {"Norm.weight": "Norm.gamma", "Norm.bias": "Norm.beta"}
    for new, old in kinds.items():
        tensors = {n.replace(new, old): v for n, v in tensors.items()}
    return tensors


def _bare(tensors):
    """As a BertModel has them, without a head."""
    start = "bert."
    found = {n.partition(start)[2]: v for n, v in tensors.items()}
    return {n: v for n, v in found.items() if n}


def _written(tmp_path, rename, **config):
    source = open_torch_file(str(GOLDEN / "pytorch_model.bin"))
    tensors = rename({n: source.read(n) for n in source.names()})
    directory = tmp_path / "source"
    directory.mkdir()
    safetensors.numpy.save_file(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        directory / "model.safetensors",
    )
    shutil.copy(GOLDEN / "vocab.txt", directory)
    text = json.loads((GOLDEN / "config.json").read_text()) | config
    (directory / "config.json").write_text(json.dumps(text))
    return directory


def test_names_of_the_oldest_files(goldens, tmp_path):
    model = _init(tmp_path, "hf", _written(tmp_path, _old_names)).model
    _check_encoder(model.reader.encoder, goldens)
    _check_logits(model, goldens)


def _without_pooler(tensors):
    """As a `BertForMaskedLM` of today has them."""
    return {n: v for n, v in tensors.items() if "pooler" not in n}


def test_a_bert_without_a_pooler(goldens, tmp_path):
    directory = _written(tmp_path, _without_pooler)
    model = _init(tmp_path, "hf", directory, "--set", "cosine=true").model
    _check_logits(model, goldens)
    tower = model.query_embedder.encoder
    _check_encoder(tower, goldens, ["sequence_output"])


def test_a_bert_without_a_head(goldens, tmp_path):
    directory = _written(tmp_path, _bare)
    (directory / "README.md").write_text(
        "---\nlanguage: en\nlicense: mit\n---\n"
    )
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    loaded = _init(tmp_path, "hf", directory, "--set", "cosine=true")
    assert loaded.model.knowledge_augmented_encoder is None
    assert loaded.card.license == "mit"
    assert loaded.card.languages == ("en",)
    assert not loaded.tokenizer.lowercase
    assert loaded.model.query_embedder.pooling == "mean"
    _check_encoder(loaded.model.block_embedder.encoder, goldens)


def test_the_lowest_layers_for_the_reader(tmp_path):
    model = _init(tmp_path, "hf", GOLDEN, "--reader-layers", "1").model
    assert model.reader.encoder.num_layers == 1
    assert model.knowledge_augmented_encoder is None
    whole = weights(model.query_embedder.encoder)
    for path, value in weights(model.reader.encoder).items():
        np.testing.assert_array_equal(value, whole[path])


def test_googles_checkpoint(tmp_path):
    arrays = random_arrays(PARTS["encoder"])
    save_tf(tmp_path / "bert_model.ckpt", arrays)
    words = (GOLDEN / "vocab.txt").read_text().splitlines()[:VOCABULARY]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    changes = ("--set", f"num_heads={HEADS}")
    model = _init(tmp_path, "tf1", tmp_path, *changes).model
    assert model.reader.encoder.activation == "gelu_approximate"
    check_encoder(model.knowledge_augmented_encoder, arrays)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A directory as Keras Hub writes it."""
    keras.utils.set_random_seed(4)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=60,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=20,
    )
    for variable in backbone.trainable_variables:
        noise = keras.random.normal(variable.shape, stddev=0.3)
        variable.assign(variable + noise)
    directory = str(tmp_path_factory.mktemp("hub") / "preset")
    backbone.save_to_preset(directory)
    tokenizer = keras_hub.models.BertTokenizer(
        str(GOLDEN / "vocab.txt"), lowercase=True
    )
    tokenizer.save_to_preset(directory)
    return directory, backbone


def test_a_keras_hub_preset(preset, goldens, tmp_path):
    directory, backbone = preset
    loaded = _init(tmp_path, "keras-hub", directory)
    outputs = backbone(_inputs(goldens))
    _check_encoder(
        loaded.model.reader.encoder,
        {**goldens, **{k: np.asarray(v) for k, v in outputs.items()}},
    )
    words = (GOLDEN / "vocab.txt").read_text().splitlines()
    assert loaded.tokenizer.vocabulary == words and loaded.tokenizer.lowercase


@pytest.mark.parametrize("pooling_mode", ["cls", "mean"])
def test_a_text_embedder_of_keras_hub(preset, tmp_path, pooling_mode):
    """Read, written again, and read by Keras Hub: the same embeddings."""
    directory, backbone = preset
    source = str(tmp_path / "source")
    embedder = keras_hub.models.BertTextEmbedder(
        backbone,
        keras_hub.models.BertTextEmbedderPreprocessor(
            keras_hub.models.BertTokenizer.from_preset(directory),
            sequence_length=12,
        ),
        pooling_mode=pooling_mode,
    )
    embedder.save_to_preset(source)
    texts = ["the river of rome", "what was it ?"]
    expected = embedder.predict(texts, verbose=0)
    loaded = _init(tmp_path, "keras-hub", source)
    inputs = embedder.preprocessor(texts)
    tower = loaded.model.query_embedder
    np.testing.assert_allclose(np.asarray(tower(inputs)), expected, atol=1e-5)
    assert loaded.model.score_scale == 20
    output = str(tmp_path / "written")
    command = ["push", "--format", "keras-hub", "--to", output]
    assert cli.main([*command, "--model", str(tmp_path / "model")]) == 0
    again = keras_hub.models.TextEmbedder.from_preset(output)
    np.testing.assert_allclose(
        again.predict(texts, verbose=0), expected, atol=1e-5
    )
    reader = keras_hub.models.Backbone.from_preset(f"{output}/reader")
    for ours, theirs in zip(
        reader.get_weights(), backbone.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_checkpoint_of_the_model_garden(tmp_path):
    source = GOLDEN.parent / "model_garden"
    vocab = tmp_path / "vocab.txt"
    words = (GOLDEN / "vocab.txt").read_text().splitlines()[:50]
    vocab.write_text("\n".join(words))
    loaded = _init(
        tmp_path, "garden", source / "trainer-1", "--vocab", str(vocab)
    )
    with np.load(source / "outputs.npz") as file:
        goldens = {k.split("/")[1]: v for k, v in file.items()}
    _check_encoder(loaded.model.query_embedder.encoder, goldens)
    logits = loaded.model.knowledge_augmented_encoder(
        {**_inputs(goldens), "mask_positions": goldens["mask_positions"]}
    )
    np.testing.assert_allclose(
        np.asarray(logits), goldens["mlm_logits"], atol=1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--from hf", "--from hf needs --source"),
        ("--from hf --source {golden}/../hf_realm/embedder", "realm import hf"),
        ("--from hf --source google/bert", "hf://OWNER/NAME."),
        ("--from tf1 --source hf://google/bert", "on a local disk"),
        ("--from tf1 --source {tmp}", "no part of a REALM or BERT"),
        ("--from tf1 --source {tmp}/none", "none.index is missing"),
        ("--from hf --source {golden} --reader-layers 3", "from 1 to 2"),
        ("--from keras-hub --source x --vocab v", "--vocab is not for"),
        ("--from hf --source {golden} --vocab {tmp}/v.txt", "not belong"),
        ("--from minilm --set cosine=true", "--set is not for --from minilm"),
        ("--from random --vocab v --source x", "--source is not for"),
        (
            "--from hf --source x --set mimetic=true",
            "with a name of num_heads,",
        ),
        ("--from keras-hub --source {tmp}/x", "could not load it as a BERT"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, arguments, message, capsys):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{number}" for number in range(3000)]
    (tmp_path / "v.txt").write_text("\n".join(words))
    command = arguments.format(golden=GOLDEN, tmp=tmp_path).split()
    output = str(tmp_path / "model")
    assert cli.main(["init", *command, "--output", output]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "model").exists()
