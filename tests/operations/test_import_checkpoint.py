"""`realm import` against what transformers 4.40.2 computed.

tests/golden/README.md says how the files were made.
"""

import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from named_weights import save_tf

from realm_tf import cli
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import index_files
from realm_tf.artifacts import model_directory
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Embeddings
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.tensor_files import open_safetensors
from realm_tf.checkpoints.torch_files import open_torch_file
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.import_checkpoint import ImportCheckpoint

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_realm"
TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}
NUM_BLOCKS = 64


def _import(sources, output, **options):
    """What `realm import hf` prints."""
    operation = ImportCheckpoint(
        kind="hf",
        source=[str(GOLDEN / source) for source in sources],
        output=str(output),
        **options,
    )
    return operation.run().lines


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDEN / "outputs.npz") as file:
        return dict(file)


def _inputs(goldens, prefix, start=""):
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }
    arrays = {k: goldens[f"{prefix}{start}{n}"] for k, n in names.items()}
    return {
        k: array.reshape(-1, array.shape[-1]).astype("int32")
        for k, array in arrays.items()
    }


@pytest.fixture(scope="module")
def open_qa(tmp_path_factory):
    """The whole of a RealmForOpenQA: model, blocks, embeddings, index."""
    root = tmp_path_factory.mktemp("open_qa")
    names = ("model", "blocks", "embeddings", "index")
    paths = {name: str(root / name) for name in names}
    status = cli.main(
        [
            *("import", "hf", "--source", str(GOLDEN / "openqa")),
            *("--output", paths["model"], "--blocks", paths["blocks"]),
            *("--embeddings", paths["embeddings"], "--license", "apache-2.0"),
            # Longer ones were cut when the goldens' embeddings were made.
            *("--max-block-length", "64"),
        ]
    )
    assert status == 0
    BuildIndex(
        embeddings=paths["embeddings"],
        output=paths["index"],
        kind="brute_force",
    ).run()
    return paths


def test_an_embedder(goldens, tmp_path):
    output = str(tmp_path / "model")
    lines = _import(["embedder"], output)
    model = model_directory.load(output).model
    assert model.share_embedders
    np.testing.assert_allclose(
        np.asarray(model.block_embedder(_inputs(goldens, "embedder/in/"))),
        goldens["embedder/out/projected_score"],
        **TOLERANCE,
    )
    assert "6 tensors not read: no embedder reads its head" in lines
    assert "reader: the BERT of the embedder, its head is random" in lines
    for ours, theirs in zip(
        model.reader.encoder.get_weights(),
        model.query_embedder.encoder.get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert model.reader.encoder is not model.query_embedder.encoder


def test_a_scorer_has_two_towers(goldens, tmp_path):
    output = str(tmp_path / "model")
    _import(
        ["scorer"],
        output,
        vocab=str(GOLDEN / "embedder" / "vocab.txt"),
    )
    model = model_directory.load(output).model
    assert not model.share_embedders
    queries = np.asarray(model.embed_queries(_inputs(goldens, "scorer/in/")))
    blocks = np.asarray(
        model.embed_blocks(_inputs(goldens, "scorer/in/", "candidate_"))
    ).reshape(2, 4, -1)
    for name, found in (
        ("query_score", queries),
        ("candidate_score", blocks),
        ("relevance_score", np.einsum("bd,bnd->bn", queries, blocks)),
    ):
        np.testing.assert_allclose(
            found, goldens[f"scorer/out/{name}"], **TOLERANCE
        )


def test_the_blocks_are_the_records(open_qa):
    records = np.load(
        GOLDEN / "openqa" / "block_records.npy", allow_pickle=True
    )
    blocks = list(schema.read_blocks(open_qa["blocks"]))
    assert len(blocks) == NUM_BLOCKS
    for number, (block, record) in enumerate(zip(blocks, records, strict=True)):
        assert block.text == " ".join(record.decode("utf-8").split())
        assert block.title == "" and block.article_id == str(number)


def test_the_embeddings_are_the_published(open_qa, goldens):
    """And the block tower computes the same: nothing is said of a warning."""
    embeddings = index_files.load_embeddings(open_qa["index"])
    metadata = artifact.read(open_qa["embeddings"], kind=schema.EMBEDDINGS)
    assert metadata["largest_difference"] < 1e-5
    for case in range(4):
        question = goldens[f"openqa/{case}/out/question_projection"]
        np.testing.assert_allclose(
            (embeddings @ question.T)[:, 0],
            goldens[f"openqa/{case}/out/block_scores"],
            **TOLERANCE,
        )


def test_questions_are_answered_as_the_peer_does(open_qa, goldens):
    corpus = Corpus.load(open_qa["model"], open_qa["blocks"], open_qa["index"])
    tokenizer = corpus.loaded.tokenizer
    questions = goldens["openqa/questions"].tolist()
    lengths = corpus.records.lengths
    predictions = []
    # The peer joins 72 wordpieces at most: the longest blocks are cut beside
    # a question of 14 and two of 15 (beside that of 17 none is).
    for room, asked in ((57, questions[:1]), (56, questions[1:])):
        corpus.records.lengths = np.minimum(lengths, room)
        predictor = Predictor(corpus, num_candidates=5, num_reader_blocks=5)
        predictions += predictor.predict(asked)
    for case, found in enumerate(predictions):
        prefix = f"openqa/{case}/out"
        retrieved = goldens[f"{prefix}/retrieved_block_ids"]
        assert found.retrieved == retrieved.tolist()
        read = int(goldens[f"{prefix}/block_idx"])
        assert found.block_id == retrieved[read]
        answer = tokenizer.tokenize(found.answer).ids
        assert answer == goldens[f"{prefix}/predicted_answer_ids"].tolist()
        logits = goldens[f"{prefix}/span_logits"]
        np.testing.assert_allclose(found.score, logits.max(), **TOLERANCE)


def test_the_card_says_where_it_is_from(open_qa):
    card = (pathlib.Path(open_qa["model"]) / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    source = GOLDEN / "openqa" / "pytorch_model.bin"
    assert f"| {source} | {fingerprints.sha256(str(source))} |" in card
    weights = pathlib.Path(open_qa["model"]) / "model.weights.h5"
    assert f"| model.weights.h5 | {fingerprints.sha256(str(weights))} |" in card
    assert "tensors not read" in card
    # What is trained from it says so, too.
    loaded = model_directory.load(open_qa["model"])
    assert loaded.card.license == "apache-2.0"
    assert loaded.card.sources[0][0] == str(source)


def test_what_is_there_already_is_left_alone(open_qa):
    before = {
        name: (pathlib.Path(path) / "metadata.json").read_bytes()
        for name, path in open_qa.items()
    }
    lines = _import(
        ["openqa"],
        open_qa["model"],
        blocks=open_qa["blocks"],
        max_block_length=64,
        embeddings=open_qa["embeddings"],
    )
    assert list(lines) == [
        f"{open_qa[name]}: there already"
        for name in ("model", "blocks", "embeddings")
    ]
    for name, path in open_qa.items():
        path = pathlib.Path(path) / "metadata.json"
        assert path.read_bytes() == before[name]


@pytest.mark.parametrize("name", ["model", "blocks", "embeddings"])
def test_what_is_there_of_something_else_is_refused(open_qa, tmp_path, name):
    paths = {n: str(tmp_path / n) for n in ("model", "blocks", "embeddings")}
    paths[name] = open_qa[name]
    texts = tmp_path / "block_records.npy"
    shutil.copy(GOLDEN / "openqa" / "block_records.npy", texts)
    with pytest.raises(InputError, match="was made of something else"):
        _import(
            ["openqa"],
            paths["model"],
            seed=1,
            blocks=paths["blocks"],
            # Embeddings know blocks by what is in them.
            max_block_length=40,
            texts=str(texts),
            embeddings=paths["embeddings"],
            block_tower=str(GOLDEN / "embedder"),
        )


def test_blocks_of_another_length_are_refused(open_qa):
    with pytest.raises(InputError, match="blocks exists already"):
        _import(
            ["openqa"],
            open_qa["model"],
            license="apache-2.0",
            blocks=open_qa["blocks"],
            max_block_length=40,
        )


def test_a_row_that_is_no_number_is_refused(tmp_path):
    rows = np.zeros((6, 3), "float32")
    rows[4, 1] = np.nan
    path = str(tmp_path / "model.safetensors")
    safetensors.numpy.save_file({"e": rows}, path)
    embeddings = BlockEmbeddings(open_safetensors(path), "e")
    assert embeddings.num_rows == 6
    np.testing.assert_array_equal(embeddings.read(1, 4), rows[1:4])
    with pytest.raises(InputError, match="row 4 of e holds NaN"):
        embeddings.read(2, 6)


def test_embeddings_of_another_tower_are_told_of(tmp_path, capsys):
    """As those of a fine-tuned checkpoint, whose tower is the questions'."""
    paths = [str(tmp_path / name) for name in ("model", "blocks", "rows")]
    status = cli.main(
        [
            *("import", "hf", "--source", str(GOLDEN / "openqa")),
            *("--block-tower", str(GOLDEN / "embedder")),
            *("--output", paths[0], "--blocks", paths[1]),
            *("--embeddings", paths[2]),
        ]
    )
    assert status == 0
    assert "these are another tower's" in capsys.readouterr().out
    model = model_directory.load(paths[0]).model
    assert not model.share_embedders


def _tf1_names(tensors):
    """A RealmForOpenQA as a fine-tuned checkpoint of the original has it."""
    found = {}
    for name in tensors.names():
        if ".cls.predictions." in name or name == "block_emb":
            continue
        value = tensors.read(name)
        path, _, kind = name.rpartition(".")
        for theirs, original in (
            ("embedder.realm", "module.module.module.module.bert"),
            ("embedder.cls", "module.module.module"),
            ("reader.realm", "reader.module.bert"),
            ("reader.qa_outputs.dense_intermediate", "reader.dense"),
            ("reader.qa_outputs.dense_output", "reader.dense_1"),
            ("reader.qa_outputs", "reader"),
            ("encoder.layer.", "encoder.layer_"),
        ):
            path = path.replace(theirs, original)
        if path.endswith("_embeddings"):
            found[path.replace(".", "/")] = value
            continue
        is_norm = path.endswith(("LayerNorm", "layer_normalization"))
        kinds = ("gamma", "beta") if is_norm else ("kernel", "bias")
        kind = kinds[kind == "bias"]
        value = value.T if kind == "kernel" else value
        found[f"{path.replace('.', '/')}/{kind}"] = value
    return found


def test_the_originals_files_give_the_same(open_qa, tmp_path):
    """TF1 checkpoints, embeddings, texts and titles."""
    source = open_torch_file(str(GOLDEN / "openqa" / "pytorch_model.bin"))
    directory = tmp_path / "orqa"
    (directory / "encoded").mkdir(parents=True)
    arrays = _tf1_names(source)
    assert arrays["reader/dense/kernel"].shape == (32, 64)
    arrays["global_step"] = np.int64(9)
    arrays["reader/dense/bias/adam_m"] = np.zeros(64, "float32")
    save_tf(directory / "model.ckpt-9", arrays)
    save_tf(
        directory / "encoded" / "encoded.ckpt",
        {"block_emb": source.read("block_emb")},
    )
    records = np.load(
        GOLDEN / "openqa" / "block_records.npy", allow_pickle=True
    )
    for name, texts in (
        ("blocks", records),
        ("titles", [f"Title {n}".encode() for n in range(NUM_BLOCKS)]),
    ):
        with tf.io.TFRecordWriter(str(directory / f"{name}.tfr")) as writer:
            for text in texts:
                writer.write(text)
    paths = {n: str(tmp_path / n) for n in ("model", "blocks", "embeddings")}
    command = [
        *("import", "tf1", "--source", str(directory), "--num-heads", "2"),
        *("--vocab", str(GOLDEN / "openqa" / "vocab.txt")),
        *("--output", paths["model"], "--blocks", paths["blocks"]),
        *("--embeddings", paths["embeddings"], "--max-block-length", "64"),
    ]
    assert cli.main(command) == 0
    model, expected = (
        model_directory.load(path).model
        for path in (paths["model"], open_qa["model"])
    )
    for part in ("query_embedder", "reader"):
        for ours, theirs in zip(
            getattr(model, part).get_weights(),
            getattr(expected, part).get_weights(),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)
    blocks = zip(
        schema.read_blocks(paths["blocks"]),
        schema.read_blocks(open_qa["blocks"]),
        strict=True,
    )
    for number, (block, other) in enumerate(blocks):
        assert block.title == f"Title {number}" and block.text == other.text
        assert block.token_ids == other.token_ids
    (shard, _), (other, _) = (
        Embeddings(path).shards[0]
        for path in (paths["embeddings"], open_qa["embeddings"])
    )
    np.testing.assert_array_equal(np.load(shard), np.load(other))


def _copy(name, tmp_path):
    copied = tmp_path / name
    shutil.copytree(GOLDEN / name, copied)
    return copied


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["scorer"], "holds no vocab.txt"),
        (["embedder", "openqa"], "holds a second embedder"),
        (["nothing"], "nothing is no directory, and nothing is downloaded"),
    ],
)
def test_sources_that_make_no_model(tmp_path, sources, message):
    with pytest.raises(InputError, match=message):
        _import(
            sources,
            str(tmp_path / "model"),
        )
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_of_another_size(tmp_path):
    source = _copy("embedder", tmp_path)
    with (source / "vocab.txt").open("a") as file:
        file.write("another\n")
    with pytest.raises(InputError, match="1,001 wordpieces, the query tower 1"):
        _import([str(source)], str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("kind", ["truncated", "shape", "nan", "extra"])
def test_damaged_weights_leave_nothing_behind(tmp_path, kind, capsys):
    import safetensors.numpy

    source = _copy("embedder", tmp_path)
    path = source / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    name = "realm.encoder.layer.1.output.dense.weight"
    expected = {
        "truncated": "cannot be read as safetensors",
        "shape": f"{name} has the shape",
        "nan": f"{name} holds NaN",
        "extra": "takes: realm.adapter.weight",
    }[kind]
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        if kind == "shape":
            tensors[name] = tensors[name].T.copy()
        elif kind == "nan":
            tensors[name][3, 2] = np.nan
        else:
            tensors["realm.adapter.weight"] = np.zeros(3, "float32")
        safetensors.numpy.save_file(tensors, path)
    output = str(tmp_path / "model")
    status = cli.main(
        ["import", "hf", "--source", str(source), "--output", output]
    )
    assert status == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not list(tmp_path.glob("model*"))


def test_texts_that_do_not_belong_to_the_embeddings(tmp_path):
    source = _copy("openqa", tmp_path)
    path = source / "block_records.npy"
    records = np.load(path, allow_pickle=True)
    np.save(path, records[:-1], allow_pickle=True)
    with pytest.raises(InputError, match="holds 63 texts .* 64 embeddings"):
        _import(
            [str(source)],
            str(tmp_path / "model"),
            blocks=str(tmp_path / "blocks"),
        )
    assert not (tmp_path / "blocks").exists()


def test_what_is_not_read_is_counted_for_each_part(tmp_path):
    """Both parts have a masked-LM head of the same names."""
    lines = _import(["openqa"], str(tmp_path / "model"))
    for part in ("embedder", "reader"):
        assert f"7 tensors not read: no {part} reads its head" in lines
