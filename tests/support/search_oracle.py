"""What every search must find, by NumPy, and rows to search among."""

import types

import numpy as np


def oracle(embeddings, queries, num_candidates):
    """Scores and ids of the best rows; of equal ones the smaller id first."""
    scores = queries @ embeddings.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :num_candidates]
    return np.take_along_axis(scores, order, axis=1), order


def recall(index, embeddings, queries, k):
    """Share of the best `k` rows that an index finds."""
    found = np.asarray(index.search(queries, k)[1]).tolist()
    truth = oracle(embeddings, queries, k)[1].tolist()
    return np.mean(
        [len(set(a) & set(b)) / k for a, b in zip(found, truth, strict=True)]
    )


def reloaded(index, reordering="float32"):
    """A `Scann` of what another one writes."""
    state = index.state()
    files = types.SimpleNamespace(
        state=lambda names: {name: state[name] for name in names},
        # As the index was built of them, or a scalar.
        embeddings=np.concatenate(
            [np.atleast_2d(part.dataset) for part in index.module.parts]
        ),
        num_blocks=index.num_blocks,
        metadata={"embedding_dim": index.embedding_dim},
        parameters={
            "reordering": reordering,
            "num_reordered": 200,
            "num_parts": len(index.module.parts),
        },
    )
    return type(index).from_files(files)


def rows(num_rows, seed=0, width=8):
    """Normally distributed rows."""
    random = np.random.default_rng(seed)
    return random.normal(size=(num_rows, width)).astype("float32")


def integers(num_rows, seed=0):
    """Rows of which many products are equal, and exactly so."""
    random = np.random.default_rng(seed)
    return random.integers(-2, 3, (num_rows, 4)).astype("float32")


def clustered(num_rows, *, seed=0, width=32, centres=400, noise=0.5):
    """Points around centres, as text embeddings are."""
    centres = np.random.default_rng(99).normal(size=(centres, width))
    random = np.random.default_rng(seed)
    far = noise * random.normal(size=(num_rows, width))
    return (centres[random.integers(0, len(centres), num_rows)] + far).astype(
        "float32"
    )
