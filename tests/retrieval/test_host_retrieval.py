"""Candidates found on the host against those found in the model's step."""

import threading

import keras
import numpy as np
import pytest
import tiny_models

from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.data.feeding import on_demand
from realm_tf.errors import InputError
from realm_tf.models.block_table import BlockTable
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.realm import RealmModel
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.host_retrieval import HostRetriever
from realm_tf.training.index_refresh import SyncIndexRefresh
from realm_tf.training.retrieval_age import RetrievalAge

PAD, CLS, SEP, MASK, VOCABULARY = 0, 2, 3, 4, 60
QUERY_LENGTH, BLOCK_LENGTH, DIM = 16, 24, 4
BATCH_SIZE, NUM_RETRIEVED, NUM_SEARCHED = 4, 3, 7
SCALE = 0.5
JIT = keras.backend.backend() == "jax"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, blocks_dir):
    packed = str(tmp_path_factory.mktemp("packed") / "blocks")
    pack_blocks(blocks_dir, packed)
    return PackedBlocks(packed)


def _batch(blocks, step):
    """One wordpiece masked in a sentence of each of four blocks."""
    random = np.random.default_rng([9, step])
    batch = {
        "token_ids": np.full((BATCH_SIZE, QUERY_LENGTH), PAD, "int32"),
        "padding_mask": np.zeros((BATCH_SIZE, QUERY_LENGTH), "int32"),
        "mask_positions": np.zeros((BATCH_SIZE, 2), "int32"),
        "mask_ids": np.zeros((BATCH_SIZE, 2), "int32"),
        "mask_weights": np.zeros((BATCH_SIZE, 2), "int32"),
        "sentence_ids": np.full((BATCH_SIZE, QUERY_LENGTH - 2), -1, "int32"),
        "block_id": np.zeros(BATCH_SIZE, "int32"),
    }
    for row, block_id in enumerate(random.integers(len(blocks), size=4)):
        block = blocks[int(block_id)]
        start, limit = block.sentence(0)
        sentence = block.token_ids[start:limit][: QUERY_LENGTH - 2]
        place = int(random.integers(len(sentence)))
        batch["sentence_ids"][row, : len(sentence)] = sentence
        batch["mask_positions"][row, 0] = 1 + place
        batch["mask_ids"][row, 0] = sentence[place]
        batch["mask_weights"][row, 0] = 1
        query = [CLS, *sentence, SEP]
        query[1 + place] = MASK
        batch["token_ids"][row, : len(query)] = query
        batch["padding_mask"][row, : len(query)] = 1
        # The last as of another corpus.
        batch["block_id"][row] = -1 if row == 3 else block_id
    return batch


def _batches(blocks):
    def batches(epoch=0, step=0):
        while True:
            yield _batch(blocks, 3 * epoch + step)
            step += 1

    return batches


def _embeddings(blocks, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(len(blocks), DIM)).astype("float32")


def _model(blocks, *, in_graph):
    """The same weights every time."""
    keras.utils.set_random_seed(4)

    def encoder():
        return tiny_models.encoder(VOCABULARY, dropout=0.0)

    def tower():
        return Embedder(encoder(), projection_dim=DIM, dropout=0.0)

    index = table = None
    if in_graph:
        token_ids, lengths = blocks.bodies(BLOCK_LENGTH)
        title_ids, title_lengths = blocks.titles(BLOCK_LENGTH)
        index = BruteForce(_embeddings(blocks, 0))
        table = BlockTable(
            token_ids,
            lengths,
            title_ids=title_ids,
            title_lengths=title_lengths,
            article_numbers=blocks.article_numbers(),
        )
    model = RealmModel(
        tower(),
        tower(),
        KnowledgeAugmentedEncoder(encoder()),
        index,
        table,
        cls_id=CLS,
        sep_id=SEP,
        score_scale=SCALE,
        num_retrieved=NUM_RETRIEVED,
        num_spare=NUM_SEARCHED - NUM_RETRIEVED,
        max_block_length=BLOCK_LENGTH,
        max_joint_length=32,
    )
    tiny_models.spread(model)
    model.compile(keras.optimizers.SGD(0.01), jit_compile=JIT)
    return model


def _retriever(blocks, model, **arguments):
    return HostRetriever(
        blocks,
        _embeddings(blocks, 0),
        query_tower=model.query_embedder,
        **{
            "num_searched": NUM_SEARCHED,
            "max_block_length": BLOCK_LENGTH,
            "score_scale": SCALE,
            **arguments,
        },
    )


def _move(tower, seed):
    random = np.random.default_rng(seed)
    tower.set_weights(
        [
            (w + random.normal(size=w.shape)).astype(w.dtype)
            for w in tower.get_weights()
        ]
    )


@pytest.mark.slow
def test_outputs_are_those_of_a_search_in_the_step(blocks):
    inside = _model(blocks, in_graph=True)
    outside = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, outside)
    batch = _batch(blocks, 0)
    before = None
    for seed in (None, 5):
        if seed is not None:
            for model in (inside, outside):
                _move(model.query_embedder, seed)
            inside.index.swap(_embeddings(blocks, seed))
            retriever.swap(_embeddings(blocks, seed))
        found = retriever.add_candidates(batch)
        expected = inside.predict(batch, verbose=0)
        outputs = outside.predict(found, verbose=0)
        assert outputs.keys() == expected.keys()
        # Article numbers mean nothing for the row of another corpus.
        for name in expected:
            rows = slice(3) if name == "of_article" else slice(None)
            np.testing.assert_allclose(
                outputs[name][rows], expected[name][rows], atol=1e-5
            )
        assert found["candidate_of_article"][3].tolist() == [0] * NUM_SEARCHED
        assert found["candidate_of_article"][:3].any()
        assert not np.array_equal(outputs["candidate_ids"], before)
        before = outputs["candidate_ids"]


def test_a_swap_alone_takes_the_weights(blocks):
    model = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, model)
    batch = _batch(blocks, 0)
    before = retriever.add_candidates(batch)
    _move(model.query_embedder, 5)
    after = retriever.add_candidates(batch)
    np.testing.assert_array_equal(
        before["candidate_block_ids"], after["candidate_block_ids"]
    )
    retriever.swap(_embeddings(blocks, 0))
    after = retriever.add_candidates(batch)["candidate_block_ids"]
    assert not np.array_equal(before["candidate_block_ids"], after)


@pytest.mark.slow
def test_shapes_are_fixed_and_no_block_comes_twice(blocks):
    model = _model(blocks, in_graph=False)
    num = len(blocks)
    retriever = _retriever(blocks, model, num_searched=num + 2)
    found = retriever.add_candidates(_batch(blocks, 1))
    assert {
        name: (rows.shape[1:], rows.dtype.name)
        for name, rows in found.items()
        if name.startswith("candidate_")
    } == {
        "candidate_block_ids": ((num + 2,), "int32"),
        "candidate_of_article": ((num + 2,), "int32"),
        "candidate_lengths": ((num + 2,), "int32"),
        "candidate_title_lengths": ((num + 2,), "int32"),
        "candidate_token_ids": ((num + 2, BLOCK_LENGTH), "int32"),
        "candidate_title_ids": ((num + 2, BLOCK_LENGTH), "int32"),
    }
    for row, block_ids in enumerate(found["candidate_block_ids"]):
        assert sorted(block_ids[:num]) == list(range(num))
        assert block_ids[num:].tolist() == [-1, -1]
        for place, block_id in enumerate(block_ids[:num]):
            block = blocks[int(block_id)]
            for name, lengths, expected in (
                ("token_ids", "lengths", block.token_ids),
                ("title_ids", "title_lengths", block.title_ids),
            ):
                ids = found[f"candidate_{name}"][row, place]
                length = found[f"candidate_{lengths}"][row, place]
                assert ids[:length].tolist() == expected.tolist()
                assert not ids[length:].any()
        assert not found["candidate_lengths"][row, num:].any()
    # A model makes do with the null block where too few may be read.
    outputs = model.predict(found, verbose=0)
    assert np.isfinite(outputs["log_probs"]).all()


def test_long_blocks_are_cut(blocks):
    model = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, model, max_block_length=5)
    block_ids = np.arange(len(blocks)).reshape(-1, 1)
    found = retriever.contents(block_ids)
    token_ids, lengths = blocks.bodies(5)
    np.testing.assert_array_equal(found["token_ids"][:, 0], token_ids)
    np.testing.assert_array_equal(found["lengths"][:, 0], lengths)
    title_ids, title_lengths = blocks.titles(5)
    width = title_ids.shape[1]
    np.testing.assert_array_equal(found["title_ids"][:, 0, :width], title_ids)
    np.testing.assert_array_equal(found["title_lengths"][:, 0], title_lengths)


def test_any_index_can_be_searched(blocks):
    model = _model(blocks, in_graph=False)
    batch = _batch(blocks, 0)
    expected = _retriever(blocks, model).add_candidates(batch)
    found = _retriever(blocks, model, make_index=BruteForce).add_candidates(
        batch
    )
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[name], rows)


def test_a_batch_is_of_one_version(blocks):
    """Weights and embeddings change together, at any moment."""
    model = _model(blocks, in_graph=False)
    tower = model.query_embedder
    weights = [tower.get_weights()]
    _move(tower, 5)
    weights.append(tower.get_weights())
    retriever = _retriever(blocks, model)
    batch = _batch(blocks, 0)

    def take(tower_number, embeddings_number):
        tower.set_weights(weights[tower_number])
        retriever.swap(_embeddings(blocks, embeddings_number))

    found = {}
    for pair in ((0, 0), (0, 1), (1, 0), (1, 1)):
        take(*pair)
        ids = retriever.add_candidates(batch)["candidate_block_ids"]
        found[ids.tobytes()] = pair
    assert len(found) == 4, "mixed versions could not be told"
    take(0, 0)
    stopped = threading.Event()

    def swap():
        number = 0
        while not stopped.is_set():
            number = 1 - number
            take(number, number)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        batches = retriever.batches(
            lambda epoch, step: iter([batch] * 60), prefetch=2
        )
        seen = [
            found[rows["candidate_block_ids"].tobytes()]
            for rows in batches(0, 0)
        ]
    finally:
        stopped.set()
        swapper.join()
    assert len(seen) == 60
    assert set(seen) == {(0, 0), (1, 1)}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_come_in_their_order(blocks, prefetch):
    retriever = _retriever(blocks, _model(blocks, in_graph=False))
    batches = retriever.batches(_batches(blocks), prefetch=prefetch)(1, 2)
    for step in range(5, 9):
        expected = retriever.add_candidates(_batch(blocks, step))
        found = next(batches)
        assert found.keys() == expected.keys()
        for name, rows in expected.items():
            np.testing.assert_array_equal(found[name], rows)
    batches.close()
    assert not _threads()


def _threads():
    return [t for t in threading.enumerate() if t.name == "read-ahead"]


def test_the_thread_ends_with_its_batches(blocks):
    retriever = _retriever(blocks, _model(blocks, in_graph=False))
    retrieved = retriever.batches(_batches(blocks), prefetch=1)
    next(retrieved(0, 0))
    # Forgotten: here Python counts references.
    assert not _threads()
    first = retrieved(0, 0)
    next(first)
    second = retrieved(0, 1)
    assert len(_threads()) == 1, "that of the latest"
    assert next(first, None) is None
    next(second)
    retriever.close()
    assert not _threads()

    def failing(epoch, step):
        yield _batch(blocks, 0)
        raise OSError("the disk is gone")

    batches = retriever.batches(failing, prefetch=1)(0, 0)
    next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert not _threads()


class _Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({k: float(v) for k, v in logs.items()})


def _fit(model, x, index, blocks, *callbacks):
    """Six steps, the index drawn again before the third and the fifth."""
    seeds = iter((5, 6))
    seen = _Seen()
    model.fit(
        x,
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[
            SyncIndexRefresh(
                index, lambda: _embeddings(blocks, next(seeds)), every_steps=2
            ),
            *callbacks,
            seen,
        ],
    )
    assert next(seeds, None) is None
    return seen.logs


class _AtEachStep(keras.callbacks.Callback):
    """A version of its own for each step: the weights as they are."""

    def __init__(self, retriever, blocks):
        super().__init__()
        self._retriever, self._blocks = retriever, blocks

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self._retriever.swap(_embeddings(self._blocks, 0))


@pytest.mark.slow
def test_training_is_that_of_a_search_in_the_step(blocks):
    """With a version for each step, the weights at the end are the same."""
    inside = _model(blocks, in_graph=True)
    make = _batches(blocks)
    inside.fit(
        on_demand(make),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[expected := _Seen()],
    )
    outside = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, outside)
    outside.fit(
        on_demand(retriever.batches(make, prefetch=0)),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[
            _AtEachStep(retriever, blocks),
            RetrievalAge(retriever),
            found := _Seen(),
        ],
    )
    assert [logs.pop("retrieval_age") for logs in found.logs] == [0] * 6
    for one, two in zip(found.logs, expected.logs, strict=True):
        assert one == pytest.approx(two, abs=1e-4)
    for one, two in zip(outside.get_weights(), _trained(inside), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


def _trained(model):
    """Weights without those of index and table."""
    others = [*model.index.weights, *model.block_table.weights]
    others = {id(variable) for variable in others}
    return [np.asarray(v) for v in model.weights if id(v) not in others]


@pytest.mark.slow
def test_with_sync_refresh_each_step_searches_the_version_due(blocks):
    runs = []
    for _ in range(2):
        model = _model(blocks, in_graph=False)
        retriever = _retriever(blocks, model)
        retrieved = retriever.batches(_batches(blocks), prefetch=0)
        logs = _fit(
            model,
            on_demand(retrieved),
            retriever,
            blocks,
            RetrievalAge(retriever),
        )
        assert [line["retrieval_age"] for line in logs] == [0, 1, 0, 1, 0, 1]
        runs.append((logs, model.get_weights()))
    assert runs[0][0] == runs[1][0]
    for one, two in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_the_age_is_of_the_version_that_the_batch_was_searched_with(blocks):
    """Batches wait for their steps, so they are older than the last swap."""
    model = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, model)
    retrieved = retriever.batches(_batches(blocks), prefetch=2)
    logs = _fit(
        model,
        ((batch,) for batch in retrieved(0, 0)),
        retriever,
        blocks,
        RetrievalAge(retriever),
    )
    ages = [int(line["retrieval_age"]) for line in logs]
    taken_at = [step - age for step, age in enumerate(ages)]
    # Keras reads two batches before the first step.
    assert taken_at[:2] == [0, 0]
    assert set(taken_at) <= {0, 2, 4} and taken_at == sorted(taken_at)
    assert all(age >= step % 2 for step, age in enumerate(ages))
    retriever.close()


def test_a_version_is_kept_and_taken_up_again(blocks, tmp_path):
    directory = str(tmp_path / "versions")
    model = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, model, directory=directory)
    names = []
    for step, seed in ((10, 5), (20, 6), (30, 7)):
        retriever.steps_done = step
        _move(model.query_embedder, seed)
        retriever.swap(_embeddings(blocks, seed))
        names.append(retriever.get_state()["version"])
        assert retriever.get_state()["version"] == names[-1]
    # The state before counts until this one is written.
    assert (
        sorted(p.name for p in (tmp_path / "versions").iterdir()) == (names[1:])
    )
    batch = _batch(blocks, 0)
    expected = retriever.add_candidates(batch)["candidate_block_ids"]
    other = _retriever(
        blocks, _model(blocks, in_graph=False), directory=directory
    )
    found = other.add_candidates(batch)["candidate_block_ids"]
    assert not np.array_equal(found, expected)
    other.set_state({"version": names[-1]})
    found = other.add_candidates(batch)["candidate_block_ids"]
    np.testing.assert_array_equal(found, expected)
    next(other.batches(_batches(blocks), prefetch=0)(0, 0))
    assert other.pop_step() == 30
    # Nothing is written again, and the newest is kept.
    assert other.get_state() == {"version": names[-1]}
    assert [p.name for p in (tmp_path / "versions").iterdir()] == names[-1:]
    with pytest.raises(InputError, match=names[0]):
        other.set_state({"version": names[0]})
    path = tmp_path / "versions" / names[-1] / "embeddings.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="is damaged"):
        retriever.set_state({"version": names[-1]})


def test_wrong_arguments(blocks):
    model = _model(blocks, in_graph=False)
    retriever = _retriever(blocks, model)
    with pytest.raises(InputError, match=r"shape=\(2, 4\)"):
        retriever.swap(_embeddings(blocks, 0)[:2])
    with pytest.raises(ValueError, match="prefetch=-1"):
        retriever.batches(_batches(blocks), prefetch=-1)
    with pytest.raises(ValueError, match="directory"):
        retriever.get_state()
    with pytest.raises(ValueError, match="num_searched=0"):
        _retriever(blocks, model, num_searched=0)
    with pytest.raises(ValueError, match="2 rows"):
        HostRetriever(
            blocks,
            _embeddings(blocks, 0)[:2],
            query_tower=model.query_embedder,
            num_searched=2,
            max_block_length=5,
        )
