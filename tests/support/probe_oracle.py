"""Probes recomputed slowly: what `realm probe` must find."""

import numpy as np
from loss_oracle import log_softmax
from one_row import one_row

from realm_tf.models.realm import NUM_SPARE

NUM_RETRIEVED = 3


def masked_query(loaded, text, answers):
    """Masked ids, places of the masks and what stands there."""
    tokenizer = loaded.tokenizer
    first, *parts = text.split("[MASK]")
    answers = answers or ["?"] * len(parts)
    ids, places, gold = (
        [tokenizer.cls_id, *tokenizer.tokenize(first).ids],
        [],
        [],
    )
    for answer, part in zip(answers, parts, strict=True):
        for piece in tokenizer.tokenize(answer).ids:
            places.append(len(ids))
            gold.append(piece)
            ids.append(tokenizer.mask_id)
        ids += tokenizer.tokenize(part).ids
    return [*ids, tokenizer.sep_id], places, gold


def _embed_query(loaded, ids):
    (embedding,) = np.asarray(loaded.model.embed_queries(one_row(ids)))
    return embedding.astype("float64")


def read(world, text, answers, block_ids, max_block_length=24, max_body=24):
    """Reads the null block (`None`) and others, one at a time, in float64.

    Args:
        world: dict of `loaded`, `records` of all blocks and the path `index`.
        text: str. With [MASK] in it.
        answers: list of str.
        block_ids: list of int or `None`.
        max_block_length: int. Wordpieces that are embedded.
        max_body: int. Wordpieces of a body that are read.

    Returns:
        log p(z|x) `(c,)`, log p(v|z,x) `(c, m, v)` and what is masked `(m,)`.
    """
    loaded = world["loaded"]
    cls, sep = loaded.tokenizer.cls_id, loaded.tokenizer.sep_id
    query, places, gold = masked_query(loaded, text, answers)
    scores, log_probs = [], []
    for block_id in block_ids:
        title, body = [], []
        if block_id is not None:
            block = world["records"][block_id]
            title, body = list(block.title_ids), list(block.token_ids)
        embedded = body[: max_block_length - 3 - len(title)]
        ids = [cls, *title, sep, *embedded, sep]
        segments = [0] * (len(title) + 2) + [1] * (len(embedded) + 1)
        assert loaded.block_segment_ids == (0, 1)
        embedding = loaded.model.block_embedder(one_row(ids, segments))
        scores.append(np.asarray(embedding)[0] @ _embed_query(loaded, query))
        body = body[:max_body]
        logits = loaded.model.knowledge_augmented_encoder(
            one_row(
                [*query, *body, sep],
                [0] * len(query) + [1] * (len(body) + 1),
                mask_positions=np.array([places], "int32"),
            )
        )
        log_probs.append([log_softmax(row) for row in np.asarray(logits)[0]])
    return log_softmax(scores), np.array(log_probs), np.array(gold)


def search(world, text, answers):
    """The retrieved blocks, without those that hold the sentence.

    As `read`; the index is brute force.
    """
    loaded = world["loaded"]
    query, places, gold = masked_query(loaded, text, answers)
    scores = np.load(f"{world['index']}/embeddings.npy") @ _embed_query(
        loaded, query
    )
    sentence = np.array(query)
    sentence[places] = gold
    sentence = " ".join(map(str, sentence[1:-1]))
    found = []
    for block_id in np.argsort(-scores)[: NUM_RETRIEVED + NUM_SPARE].tolist():
        # These sentences occur in a block as a whole, or not at all.
        body = " ".join(map(str, world["records"][block_id].token_ids))
        if f" {sentence} " not in f" {body} ":
            found.append(block_id)
    return found[:NUM_RETRIEVED]
