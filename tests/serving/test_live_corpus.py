"""A running server while the documents that it answers from change."""

import threading

import backends
import pytest
from waiting import wait_for

import realm_tf as realm
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.export.runtime import Runtime
from realm_tf.serving import servable
from realm_tf.serving import server
from realm_tf.serving.client import RealmClient

pytestmark = [pytest.mark.slow, backends.exports]


def test_updates_under_load(tmp_path, model_dir, monkeypatch):
    """No request fails, no answer mixes two states, the model is loaded once."""
    graphs = []

    def load(*args, **options):
        graphs.append(Runtime(*args, **options))
        return graphs[-1]

    monkeypatch.setattr(servable, "Runtime", load)
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    docs.mkdir()
    # All documents of a state say the same number.
    names = ["ada", "nile", "rome", "etna", "bach"]
    states = ["fire", "organ", "river"]

    def write(word):
        for name in names:
            (docs / f"{name}.txt").write_text(f"The {name} is {word}.")

    write(states[0])
    realm.CreateCorpus(
        documents=str(docs), output=str(corpus), model=model_dir
    ).run()
    seen, failed, stop = [], [], threading.Event()
    with server.start(LiveCorpus(corpus).saved_model) as running:

        def ask():
            client = RealmClient(running.target)
            while not stop.is_set():
                try:
                    (answer,) = client.ask(["What is Rome?"])
                except Exception as error:
                    failed.append(error)
                    return
                words = {
                    each.text.rstrip(".").split()[-1]
                    for each in answer.candidates
                }
                seen.append(words)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for word in states[1:]:
                write(word)
                realm.SyncCorpus(corpus=str(corpus)).run()
                wait_for(lambda word=word: failed or seen[-1] == {word})
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not failed
    assert len(graphs) == 1
    assert all(len(words) == 1 for words in seen)
    # Each thread goes from a state to the next, never back.
    order = [states.index(*words) for words in seen]
    assert sorted(set(order)) == [0, 1, 2]
    assert max(a - b for a, b in zip(order, order[1:], strict=False)) <= 1
