"""The SavedModel's signatures, and that it says what the Python code says."""

import dataclasses
import pathlib
import re
import subprocess
import sys
from concurrent import futures

import backends
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.answering.answerer import NUM_ALTERNATIVES
from realm_tf.answering.answerer import Answerer
from realm_tf.answering.corpus import Corpus
from realm_tf.serving.client import to_answers
from realm_tf.serving.servable import SavedModelServable

pytestmark = backends.exports

NUM_BLOCKS = 11
# Version: blocks read.
NUM_READ = {1: 15, 2: 5}


def _outputs(dtype, rank, names):
    """Name: (type, rank)."""
    return dict.fromkeys(names.split(), (dtype, rank))


OUTPUTS = {
    "serving_default": {
        **_outputs(tf.string, 1, "answer title text url answer_sentence"),
        **_outputs(tf.float32, 1, "score confidence"),
        **_outputs(tf.int64, 1, "block_id start limit"),
        **_outputs(tf.bool, 1, "answered is_sentence"),
        **_outputs(tf.string, 2, "nbest_answer candidate_answer candidate_url"),
        **_outputs(tf.string, 2, "candidate_title candidate_text"),
        **_outputs(tf.float32, 2, "nbest_score candidate_log_prob"),
        **_outputs(tf.int64, 2, "candidate_block_id"),
    },
    "retrieve": {
        **_outputs(tf.string, 2, "title text url"),
        **_outputs(tf.float32, 2, "score lexical_score"),
        **_outputs(tf.int64, 2, "block_id"),
    },
    "embed_query": _outputs(tf.float32, 2, "embedding"),
    "embed_block": _outputs(tf.float32, 2, "embedding"),
}
INPUTS = {
    "serving_default": ["question"],
    "retrieve": ["question"],
    "embed_query": ["question"],
    "embed_block": ["text", "title"],
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, marks=pytest.mark.slow), 2],
    ids=["brute_force", "scann"],
)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def signatures(exported, version):
    loaded = tf.saved_model.load(f"{exported}/{version}")
    # Kept: its variables go with it.
    return loaded, loaded.signatures


@pytest.fixture(scope="module")
def ask(signatures):
    def ask(questions, name="serving_default"):
        outputs = signatures[1][name](
            question=tf.constant(questions, tf.string)
        )
        return {key: value.numpy() for key, value in outputs.items()}

    return ask


@pytest.fixture(scope="module")
def corpus(model_dir, blocks_dir, brute_force_index_dir, exported):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


def _decode(value):
    return [v.decode("utf-8") for v in value]


def test_the_signatures_are_those_of_the_contract(signatures):
    assert set(signatures[1]) == set(OUTPUTS)
    for name, outputs in OUTPUTS.items():
        signature = signatures[1][name]
        found = {
            key: (spec.dtype, spec.shape.rank)
            for key, spec in signature.structured_outputs.items()
        }
        assert found == outputs, name
        _, inputs = signature.structured_input_signature
        assert sorted(inputs) == INPUTS[name]
        for spec in inputs.values():
            assert spec.dtype == tf.string and spec.shape.as_list() == [None]


@pytest.mark.parametrize("batch_size", [0, 1, 3])
def test_the_shapes_of_what_comes_out(ask, version, batch_size):
    outputs = ask(["Where was Ada?"] * batch_size)
    for name, value in outputs.items():
        width = {
            "nbest": (NUM_ALTERNATIVES,),
            "candidate": (NUM_READ[version],),
        }.get(name.split("_")[0], ())
        assert value.shape == (batch_size, *width), name
    retrieved = ask(["Where was Ada?"] * batch_size, "retrieve")
    for value in retrieved.values():
        assert value.shape == (batch_size, NUM_BLOCKS)


def _numbers_and_rest(answer):
    """What is computed in float32, and what must be equal."""
    rest = dataclasses.asdict(answer)
    numbers = [rest.pop(name) for name in ("score", "confidence")]
    numbers += [each.pop("score") for each in rest["nbest"]]
    numbers += [each.pop("log_prob") for each in rest["candidates"]]
    return numbers, rest


@pytest.mark.parametrize(
    "version", [pytest.param(1, marks=pytest.mark.slow), 2, 3]
)
def test_answers_are_those_of_the_python_code(
    exported,
    asked,
    version,
    model_dir,
    blocks_dir,
    brute_force_index_dir,
    ivf_index_dir,
    evaluation_dir,
):
    arguments = {
        1: {"num_reader_blocks": 15},
        2: {},
        3: {
            "quantize": "bfloat16",
            "retriever": "hybrid",
            "calibrated_by": evaluation_dir,
        },
    }
    answerer = Answerer(
        model_dir,
        blocks_dir,
        ivf_index_dir if version == 3 else brute_force_index_dir,
        **arguments[version],
    )
    found = answerer.ask(asked)
    loaded = tf.saved_model.load(f"{exported}/{version}")
    outputs = loaded.signatures["serving_default"](question=tf.constant(asked))
    wanted = to_answers(
        {name: value.numpy().tolist() for name, value in outputs.items()},
        count=len(asked),
    )
    for python, graph in zip(found, wanted, strict=True):
        numbers, rest = _numbers_and_rest(python)
        of_graph, rest_of_graph = _numbers_and_rest(graph)
        assert numbers == pytest.approx(of_graph, abs=1e-4)
        assert rest == rest_of_graph
    assert found[3].answer == "" and found[3].block_id == -1
    assert [each.is_sentence for each in found] == [False] * 5 + [True]
    assert found[5].answer == found[5].answer_sentence
    for each in found[:3]:
        assert each.answer in each.answer_sentence in each.text
    assert answerer.ask(asked[0]).answer == found[0].answer


def test_fewer_blocks_than_are_read_are_padded(ask, version):
    outputs = ask(["Where was Ada?"])
    num_padded = max(0, NUM_READ[version] - NUM_BLOCKS)
    padded = outputs["candidate_block_id"][0] == -1
    assert padded.tolist() == [False] * (NUM_READ[version] - num_padded) + (
        [True] * num_padded
    )
    for name in ("title", "text", "answer"):
        assert set(outputs[f"candidate_{name}"][0][padded]) <= {b""}
    assert np.all(outputs["candidate_log_prob"][0][padded] == -np.inf)


def test_a_blank_question_has_no_answer(ask):
    """As an empty one, of which the answer is compared above."""
    for name, values in ask([" \t\n ", "", "fire"]).items():
        np.testing.assert_array_equal(values[0], values[1], err_msg=name)
        if name in ("answer", "candidate_answer", "nbest_answer"):
            assert not np.any(values[0] != b"") and np.any(values[2] != b"")
        if name.endswith("block_id"):
            assert np.all(values[0] == -1) and np.all(values[2].flat[0] >= 0)
    found = ask([" \t\n ", ""], "retrieve")["block_id"]
    assert set(found.ravel()) == {-1}


def test_calls_at_once_are_as_one_after_the_other(exported, version, asked):
    """In the session that the server runs, with Grappler."""
    # Batches of other sizes and lengths are computed beside each other.
    batches = [asked[:1], asked[:3], [*asked, *asked], [f"{asked[0]} " * 5]]
    batches = [
        {"question": np.array([text.encode() for text in batch], object)}
        for batch in batches
    ]
    with SavedModelServable(f"{exported}/{version}") as servable:
        expected = [servable.run(batch) for batch in batches]
        with futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(servable.run, batches * 4))
    for number, outputs in enumerate(found):
        for name, values in expected[number % len(batches)].items():
            if values.dtype == object:
                np.testing.assert_array_equal(outputs[name], values)
            else:
                np.testing.assert_allclose(outputs[name], values, atol=1e-4)


def test_no_text_is_a_constant_of_the_graph(exported, version, corpus):
    """Graphs end at 2 GB; variables do not."""
    with open(f"{exported}/{version}/saved_model.pb", "rb") as file:
        graph = file.read()
    for text in corpus.records.texts:
        assert text.encode("utf-8") not in graph


def test_every_weight_is_saved_once(exported, version, corpus):
    shapes = [
        shape
        for _, shape in tf.train.list_variables(
            f"{exported}/{version}/variables/variables"
        )
    ]
    encoder = corpus.loaded.model.query_embedder.encoder
    # Of the shared tower and of the reader.
    for rows in (encoder.vocabulary_size, encoder.max_sequence_length):
        assert shapes.count([rows, encoder.hidden_dim]) == 2


@pytest.mark.slow
def test_it_is_loaded_as_the_docs_say(exported, ask, asked, tmp_path, version):
    """In a fresh process, without a package of ours."""
    page = (
        pathlib.Path(__file__).parents[2] / "docs" / "how_to" / "tf_serving.md"
    )
    (recipe,) = re.findall(
        r"<!-- test: plain load -->\s+```python\n(.*?)```",
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "1").symlink_to(f"{exported}/{version}")
    script = recipe.replace("Who wrote Frankenstein?", asked[0])
    script += 'import sys; assert "realm_tf" not in sys.modules\n'
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = ask(asked[:1])
    answer, url = (found[name][0].decode() for name in ("answer", "url"))
    assert done.stdout == f"{answer} {url}\n"
