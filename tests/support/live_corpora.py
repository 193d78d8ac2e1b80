"""Files that become a corpus, and what a corpus holds."""

import numpy as np

from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.export import signatures
from realm_tf.serving.servable import SavedModelServable

QUESTIONS = ["What flows to Egypt?", "Rome", "Where was Ada?", ""]


def write(folder, files):
    """Writes files, given by name, in folders that need not be there."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)


def contents(corpus):
    """What the current state says, in order of article and place: (article,
    title, text, url), and the embeddings."""
    state = LiveCorpus(corpus).state()
    records = state.records()
    columns = (state.owners(), records.titles, records.texts, records.urls)
    blocks = list(zip(*columns, strict=True))
    order = sorted(range(len(blocks)), key=lambda n: (blocks[n][0], n))
    return [blocks[n] for n in order], state.embeddings()[order]


def outputs(corpus, questions, filter=None):
    """What the export of the current state gives."""
    corpus = LiveCorpus(corpus)
    asked = np.array([each.encode() for each in questions], object)
    inputs, signature = {"question": asked}, signatures.DEFAULT
    if filter is not None:
        inputs["filter"] = np.full(len(asked), filter.encode(), object)
        signature += signatures.FILTERED
    with SavedModelServable(
        corpus.version(corpus.manifest().state).path
    ) as servable:
        return servable.run(inputs, signature=signature)


def assert_same_answers(corpus, other):
    """But for what blocks are called, and the order of equal ones."""
    found, wanted = (outputs(each, QUESTIONS) for each in (corpus, other))
    for name in ("score", "confidence", "candidate_log_prob"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-4)
    for name in ("answer", "title", "text", "candidate_text"):
        assert np.sort(found[name]).tolist() == np.sort(wanted[name]).tolist()
