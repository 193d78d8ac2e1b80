"""Candidates found on the host against those found in the model's step."""

import os
import threading

import host_retrieval_world as world
import numpy as np
import pytest

from realm_tf.errors import InputError
from realm_tf.retrieval.numpy_index import NumpyIndex


@pytest.mark.slow
def test_outputs_are_those_of_a_search_in_the_step(packed_blocks):
    inside = world.make_model(packed_blocks, in_graph=True)
    outside = world.make_model(packed_blocks, in_graph=False)
    retriever = world.make_retriever(packed_blocks, outside)
    batch = world.make_batch(packed_blocks, 0)
    before = None
    for seed in (None, 5):
        if seed is not None:
            for model in (inside, outside):
                world.move(model.query_embedder, seed)
            inside.index.swap(world.make_embeddings(packed_blocks, seed))
            world.swap(retriever, packed_blocks, seed)
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
        assert (
            found["candidate_of_article"][3].tolist()
            == [0] * world.NUM_SEARCHED
        )
        assert found["candidate_of_article"][:3].any()
        assert not np.array_equal(outputs["candidate_ids"], before)
        before = outputs["candidate_ids"]


def test_a_swap_alone_takes_the_weights(packed_blocks):
    model = world.make_model(packed_blocks, in_graph=False)
    retriever = world.make_retriever(packed_blocks, model)
    batch = world.make_batch(packed_blocks, 0)
    before = retriever.add_candidates(batch)
    world.move(model.query_embedder, 5)
    after = retriever.add_candidates(batch)
    np.testing.assert_array_equal(
        before["candidate_block_ids"], after["candidate_block_ids"]
    )
    world.swap(retriever, packed_blocks, 0)
    after = retriever.add_candidates(batch)["candidate_block_ids"]
    assert not np.array_equal(before["candidate_block_ids"], after)


def test_shapes_are_fixed_and_long_blocks_are_cut(packed_blocks):
    model = world.make_model(packed_blocks, in_graph=False)
    num = len(packed_blocks)
    retriever = world.make_retriever(
        packed_blocks, model, num_searched=num + 2, max_block_length=5
    )
    found = retriever.add_candidates(world.make_batch(packed_blocks, 1))
    block_ids = found["candidate_block_ids"]
    for row in block_ids:
        assert sorted(row[:num]) == list(range(num))
        assert row[num:].tolist() == [-1, -1]
    for prefix, (ids, lengths) in {
        "token": packed_blocks.bodies(5),
        "title": packed_blocks.titles(5),
    }.items():
        # The last row is that of no block.
        ids = np.pad(ids, [[0, 1], [0, 5 - ids.shape[1]]])
        of_title = "title_" * (prefix == "title")
        np.testing.assert_array_equal(
            found[f"candidate_{prefix}_ids"], ids[block_ids]
        )
        np.testing.assert_array_equal(
            found[f"candidate_{of_title}lengths"],
            np.append(lengths, 0)[block_ids],
        )
    assert {
        rows.dtype.name
        for name, rows in found.items()
        if name.startswith("candidate_")
    } == {"int32"}


def test_a_batch_is_of_one_version(packed_blocks):
    """Weights and embeddings change together, at any moment."""
    model = world.make_model(packed_blocks, in_graph=False)
    tower = model.query_embedder
    weights = [tower.get_weights()]
    world.move(tower, 5)
    weights.append(tower.get_weights())
    retriever = world.make_retriever(packed_blocks, model)
    batch = world.make_batch(packed_blocks, 0)

    def take(tower_number, embeddings_number):
        tower.set_weights(weights[tower_number])
        world.swap(retriever, packed_blocks, embeddings_number)

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


def test_an_index_is_closed_when_no_batch_needs_it(packed_blocks):
    closed = []

    class Counted(NumpyIndex):
        searches = threading.Event(), threading.Event()

        def search(self, queries, num_candidates, allowed=None):
            begun, may_end = self.searches
            begun.set()
            assert may_end.wait(60)
            return super().search(queries, num_candidates, allowed)

        def close(self):
            closed.append(self)

    retriever = world.make_retriever(
        packed_blocks,
        world.make_model(packed_blocks, in_graph=False),
        make_index=Counted,
    )
    batch = world.make_batch(packed_blocks, 0)
    user = threading.Thread(target=retriever.add_candidates, args=(batch,))
    user.start()
    begun, may_end = Counted.searches
    assert begun.wait(60)
    world.swap(retriever, packed_blocks, 1)
    assert closed == [], "a batch is being searched with it"
    may_end.set()
    user.join()
    assert len(closed) == 1
    world.swap(retriever, packed_blocks, 2)
    assert len(closed) == 2, "no batch was"


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_come_in_their_order(packed_blocks, prefetch):
    retriever = world.make_retriever(
        packed_blocks, world.make_model(packed_blocks, in_graph=False)
    )
    batches = retriever.batches(
        world.make_batches(packed_blocks), prefetch=prefetch
    )(1, 2)
    for step in range(5, 9):
        expected = retriever.add_candidates(
            world.make_batch(packed_blocks, step)
        )
        found = next(batches)
        assert found.keys() == expected.keys()
        for name, rows in expected.items():
            np.testing.assert_array_equal(found[name], rows)
    batches.close()
    assert not _threads()


def _threads():
    return [t for t in threading.enumerate() if "read-ahead" in t.name]


def test_the_thread_ends_with_its_batches(packed_blocks):
    retriever = world.make_retriever(
        packed_blocks, world.make_model(packed_blocks, in_graph=False)
    )
    retrieved = retriever.batches(world.make_batches(packed_blocks), prefetch=1)
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
        yield world.make_batch(packed_blocks, 0)
        raise OSError("the disk is gone")

    batches = retriever.batches(failing, prefetch=1)(0, 0)
    next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert not _threads()


def test_a_version_is_kept_and_taken_up_again(packed_blocks, tmp_path):
    directory = str(tmp_path / "versions")
    model = world.make_model(packed_blocks, in_graph=False)
    retriever = world.make_retriever(packed_blocks, model, directory=directory)
    for step, seed in ((10, 5), (20, 6), (30, 7)):
        retriever.steps_done = step
        world.move(model.query_embedder, seed)
        world.swap(retriever, packed_blocks, seed)
        assert retriever.get_state() == {"step": step}
        assert retriever.get_state() == {"step": step}
    # The state before counts until this one is written.
    assert sorted(os.listdir(directory)) == ["00000020.npz", "00000030.npz"]
    batch = world.make_batch(packed_blocks, 0)
    expected = retriever.add_candidates(batch)["candidate_block_ids"]
    other = world.make_retriever(
        packed_blocks,
        world.make_model(packed_blocks, in_graph=False),
        seed=7,
        directory=directory,
    )
    found = other.add_candidates(batch)["candidate_block_ids"]
    assert not np.array_equal(found, expected)
    other.set_state({"step": 30})
    found = other.add_candidates(batch)["candidate_block_ids"]
    np.testing.assert_array_equal(found, expected)
    next(other.batches(world.make_batches(packed_blocks), prefetch=0)(0, 0))
    other.steps_done = 34
    other.on_train_batch_end(0, logs := {})
    assert logs == {"retrieval_age": 4}
    # Nothing is written again, and the newest is kept.
    (path,) = (tmp_path / "versions").glob("00000030*")
    written_at = path.stat().st_mtime_ns
    assert other.get_state() == {"step": 30}
    assert os.listdir(directory) == [path.name]
    assert path.stat().st_mtime_ns == written_at
    with pytest.raises(InputError, match="00000010"):
        other.set_state({"step": 10})
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="is damaged"):
        retriever.set_state({"step": 30})
