"""Readers from elsewhere: `BertForQuestionAnswering` as `realm init --reader`.

The encoder's outputs are those of transformers (tests/golden/hf_bert); the
logits are computed from them here, in NumPy.
"""

import json
import pathlib

import backends
import numpy as np
import pytest
import safetensors.numpy

from realm_tf import cli
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.assignment import extract
from realm_tf.checkpoints.source import Layout
from realm_tf.checkpoints.tensor_files import open_torch_file
from realm_tf.models import model_directory
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_bert"
WORDS = (GOLDEN / "vocab.txt").read_text().splitlines()
WIDTH = 32


def _write(directory, tensors, config, words=WORDS):
    directory.mkdir()
    safetensors.numpy.save_file(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        directory / "model.safetensors",
    )
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "vocab.txt").write_text("\n".join(words))
    return directory


def _config(**changes):
    return json.loads((GOLDEN / "config.json").read_text()) | changes


@pytest.fixture(scope="module")
def tensors():
    """As `BertForQuestionAnswering` saves them: without a pooler."""
    file = open_torch_file(str(GOLDEN / "pytorch_model.bin"))
    found = {
        name: file.read(name)
        for name in file.names()
        if name.startswith("bert.") and "pooler" not in name
    }
    random = np.random.default_rng(4)
    width = _config()["hidden_size"]
    found["qa_outputs.weight"] = random.normal(size=(2, width)).astype("f4")
    found["qa_outputs.bias"] = np.array([0.7, -0.4], "f4")
    return found


def _init(source, reader, output, *more):
    command = ["init", "--from", "hf", "--source", str(source), *more]
    return cli.main(
        [*command, "--reader", str(reader), "--output", str(output)]
    )


def test_scores_are_the_originals(tensors, tmp_path, hub):
    """start_i + end_j - (start_0 + end_0), from the hub and the disk."""
    directory = _write(tmp_path / "qa", tensors, _config(model_type="bert"))
    (directory / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    hub.add("deepset/tiny-squad2", directory)
    output = tmp_path / "model"
    address = "hf://deepset/tiny-squad2"
    assert _init(GOLDEN, address, output, "--set", "cosine=true") == 0
    loaded = model_directory.load(str(output))
    assert loaded.model.knowledge_augmented_encoder is None
    assert (
        loaded.card.notes[-1] == f"Its reader is {address}, license cc-by-4.0."
    )
    assert loaded.card.sources[-1][0] == f"{address}/model.safetensors"
    reader = loaded.model.reader
    assert reader.is_trained and not reader.reads_titles
    assert reader.max_span_width == WIDTH
    with np.load(GOLDEN / "outputs.npz") as file:
        goldens = dict(file)
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = {name: goldens[name].astype("int32") for name in names}
    scores = np.asarray(reader(inputs))
    logits = goldens["sequence_output"] @ tensors["qa_outputs.weight"].T
    starts, ends = np.moveaxis(logits + tensors["qa_outputs.bias"], -1, 0)
    for row, length in enumerate(goldens["padding_mask"].sum(axis=1)):
        for start in range(length):
            for end in range(start, min(length, start + WIDTH)):
                expected = starts[row, start] + ends[row, end]
                expected -= starts[row, 0] + ends[row, 0]
                found = scores[row, start, end - start]
                assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ("words", (), "has another vocabulary than the retriever (60 word"),
        ("case", (), "lower-casing False, and 60, True"),
        ("head", (), "holds bert and no reader: expected the start and end"),
        (None, ("--reader-layers", "1"), "--reader-layers is not for --reader"),
    ],
)
def test_a_reader_that_does_not_fit_is_refused(
    tensors, tmp_path, capsys, change, more, message
):
    words = [*WORDS[:-1], "another"] if change == "words" else WORDS
    if change == "head":
        tensors = {k: v for k, v in tensors.items() if "qa" not in k}
    directory = _write(tmp_path / "qa", tensors, _config(), words)
    if change == "case":
        path = directory / "tokenizer_config.json"
        path.write_text('{"do_lower_case": false}')
    assert _init(GOLDEN, directory, tmp_path / "model", *more) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_a_reader_alone_is_no_source(tensors, tmp_path, capsys):
    directory = _write(tmp_path / "qa", tensors, _config())
    assert _init(directory, "untrained", tmp_path / "model") == 2
    assert "--reader for a reader alone" in capsys.readouterr().err


@backends.exports
@pytest.mark.parametrize("answer", [b"Tiber", b""])
def test_it_answers_from_an_export(
    answer, model_dir, blocks_dir, brute_force_index_dir, tmp_path, monkeypatch
):
    """A reader whose logits are highest at one word answers with it.

    Where nothing is left of a span, nothing is answered.
    """
    import tensorflow as tf

    from realm_tf.export.corpus_part import CorpusPart
    from realm_tf.operations.export import Export

    loaded = model_directory.load(model_dir)
    words = loaded.tokenizer.vocabulary
    sizes = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 8}
    encoder = BertEncoder(len(words), 1, **sizes)
    reader = Reader(encoder, span_hidden_dim=0)
    table = np.random.default_rng(0).normal(size=(len(words), 16))
    encoder.get_layer("token_embedding").set_weights([table])
    word = table[words.index("tiber")]
    reader.get_layer("span_scorer").endpoints.set_weights(
        [np.stack([word, word], axis=1), np.zeros(2)]
    )
    head = {"span_scorer/endpoints": "qa_outputs"}
    layout = Layout("reader", "bert.", head)
    found = extract(reader, hugging_face.NAMES.mapping(layout, 1, pooler=False))
    config = hugging_face.from_encoder_config(encoder.get_config())
    source = _write(tmp_path / "qa", found, config, words)
    made = hugging_face.open_source(str(source)).makers["reader"]()
    loaded.model = OpenQa(
        *(loaded.model.query_embedder, loaded.model.block_embedder, made)
    )
    model_directory.save(loaded, str(tmp_path / "model"))
    cut = CorpusPart.slice

    def blank(*given):
        found = cut(*given)
        return found | {"answer": tf.zeros_like(found["answer"])}

    monkeypatch.setattr(CorpusPart, "slice", cut if answer else blank)
    exported = Export(
        model=str(tmp_path / "model"),
        blocks=blocks_dir,
        index=brute_force_index_dir,
        output=str(tmp_path / "export"),
        num_reader_blocks=11,
    ).run()
    ask = tf.saved_model.load(exported.path).signatures["serving_default"]
    found = ask(question=tf.constant(["What is the river of Rome?"]))
    assert found["answer"].numpy() == [answer]
    assert found["answered"].numpy() == [answer != b""]
    assert found["title"].numpy() == [b"Rome"]
