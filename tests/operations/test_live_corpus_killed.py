"""`realm corpus sync`, killed at any moment."""

import os
import random
import signal
import subprocess
import sys
import time

import backends
import pytest

import realm_tf as realm
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.serving.servable import SavedModelServable

pytestmark = [pytest.mark.slow, backends.exports]
NUM_KILLS = 50
WORDS = ["the", "river", "of", "Rome", "fire", "in", "London", "Ada", "was"]


def _sync(corpus):
    return subprocess.Popen(
        [sys.executable, "-m", "realm_tf.cli", "corpus", "sync", corpus],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _texts(corpus):
    """The text of each document of the current state."""
    rows = LiveCorpus(corpus).state().rows()
    return {name: row["text"] for name, row in rows.items()}


def test_there_is_always_the_old_or_the_new_state(tmp_path, model_dir):
    draw = random.Random(0)
    docs, corpus = tmp_path / "docs", str(tmp_path / "corpus")
    docs.mkdir()
    (docs / "0.txt").write_text("Ada was in London.")
    realm.CreateCorpus(
        documents=str(docs), output=corpus, model=model_dir
    ).run()
    started = time.monotonic()
    (docs / "1.txt").write_text("The Nile.")
    assert _sync(corpus).wait() == 0
    longest = time.monotonic() - started
    current, num_changed = _texts(corpus), 0
    for _ in range(NUM_KILLS):
        for number in draw.sample(range(8), 2):
            words = draw.choices(WORDS, k=draw.randint(1, 9))
            (docs / f"{number}.txt").write_text(f"{' '.join(words)}.")
        wanted = {
            f"docs/{each.name}": each.read_text() for each in docs.iterdir()
        }
        process = _sync(corpus)
        try:
            process.wait(draw.uniform(0.3, 1.1) * longest)
            # Follows a machine whose speed changes: some end, most do not.
            longest *= 0.9
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            longest *= 1.05
        found = _texts(corpus)
        assert found in (current, wanted)
        num_changed += found != current
        current = found
        # What a server would load answers from that state.
        live = LiveCorpus(corpus)
        version = live.version(live.manifest().state)
        assert version.is_complete
        records = live.state().records()
        assert sorted(records.texts) == sorted(current.values())
    assert 0 < num_changed < NUM_KILLS
    assert _sync(corpus).wait() == 0
    assert _texts(corpus) == wanted
    with SavedModelServable(live.saved_model) as servable:
        (answer,) = servable.ask(["Where was Ada?"])
    texts = {each.text for each in answer.candidates}
    assert texts and texts <= set(wanted.values())
    assert servable.card["num_blocks"] == len(wanted)
