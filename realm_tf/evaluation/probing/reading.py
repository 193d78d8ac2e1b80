"""Reads a masked query with each of its candidates, for `realm probe`."""

import dataclasses

import numpy as np
from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.configs import pretrain as configs
from realm_tf.evaluation.probing.masked_query import Block
from realm_tf.evaluation.probing.masked_query import Query
from realm_tf.models.block_table import BlockTable
from realm_tf.models.realm import RealmModel


def recipe_of(loaded) -> dict:
    """What a model was pre-trained with, else the paper's numbers.

    Args:
        loaded: `LoadedModel`.

    Returns:
        dict, with the names of `PretrainRecipe`.
    """
    paper = dataclasses.asdict(configs.PretrainRecipe())
    return {**paper, **loaded.metadata["parameters"]}


def search(loaded, index, query: Query, num_retrieved: int) -> list[int]:
    """Block ids, best first, with spare ones as in pre-training.

    Args:
        loaded: `LoadedModel`.
        index: `Index`.
        query: `Query`.
        num_retrieved: int.
    """
    _, block_ids = index.search(
        loaded.model.embed_queries(query.inputs()),
        min(num_retrieved + recipe_of(loaded)["num_spare"], index.num_blocks),
    )
    return np.asarray(block_ids)[0].tolist()


def make_realm_model(loaded, blocks: list[Block], query: Query, num_retrieved):
    """`RealmModel` over some blocks, which are cut as in its training.

    Args:
        loaded: `LoadedModel` with a masked-LM head.
        blocks: list of `Block`. Rows of its `BlockTable`.
        query: `Query`.
        num_retrieved: int. Candidates besides the null block.
    """
    open_qa, recipe = loaded.model, recipe_of(loaded)
    max_block_length = min(
        recipe["max_block_length"],
        open_qa.block_embedder.encoder.max_sequence_length,
    )
    # A query longer than those in training takes nothing away from blocks.
    max_joint_length = min(
        max(
            recipe["max_joint_length"], len(query.token_ids) + max_block_length
        ),
        open_qa.reader.encoder.max_sequence_length,
    )
    token_ids, lengths = _table([b.token_ids for b in blocks], max_block_length)
    title_ids, title_lengths = _table(
        [b.title_ids for b in blocks], max_block_length
    )
    return RealmModel(
        open_qa.query_embedder,
        open_qa.block_embedder,
        open_qa.knowledge_augmented_encoder,
        None,
        BlockTable(
            token_ids,
            lengths,
            title_ids=title_ids,
            title_lengths=title_lengths,
        ),
        cls_id=loaded.tokenizer.cls_id,
        sep_id=loaded.tokenizer.sep_id,
        block_segment_ids=loaded.block_segment_ids,
        score_scale=open_qa.score_scale,
        num_retrieved=num_retrieved,
        max_block_length=max_block_length,
        max_joint_length=max_joint_length,
        marginalization="span",
    )


def _table(rows, max_length):
    rows = [row[:max_length] for row in rows]
    table = np.zeros((len(rows), max(map(len, rows))), "int32")
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table, np.array([len(row) for row in rows], "int32")


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a model says, of the candidates that take part.

    Args:
        rows: list of int. Their rows in the block table, -1 for the null
            block, which is the first.
        is_added: bool array `(num_candidates,)`. Not retrieved, but wanted.
        left_out: list of int. Rows that were searched and passed over.
        log_priors: float array `(num_candidates,)`. log p(z | x), in nats.
        log_probs: float array `(num_candidates,)`. log p(y | z, x).
        gradients: float array `(num_candidates,)`. r(z).
        marginal: float. log p(y | x).
        retrieved: float. The same without what was added.
        probs: float array `(num_candidates, num_masks, vocabulary_size)`.
    """

    rows: list[int]
    is_added: np.ndarray
    left_out: list[int]
    log_priors: np.ndarray
    log_probs: np.ndarray
    gradients: np.ndarray
    marginal: float
    retrieved: float
    probs: np.ndarray


def read(model, query: Query, *, num_searched: int, wanted: list[int]):
    """Does what `RealmModel` does, with some more candidates.

    Args:
        model: `RealmModel`. The first `num_searched` rows of its table are
            what was searched, best first.
        query: `Query`.
        num_searched: int.
        wanted: list of int. Rows that are read in any case.

    Returns:
        `Reading`.
    """
    inputs = query.inputs()
    queries = model.score_scale * model.query_embedder(inputs)
    rows, allowed = _find(model, query, queries, num_searched)
    chosen = rows[allowed].tolist()
    added = [row for row in wanted if row not in chosen]
    rows = np.array([*rows, *added], "int32")
    is_added = np.array([False] * (1 + len(allowed)) + [True] * len(added))
    mask = np.array([True, *allowed, *[True] * len(added)])
    found = {
        name: ops.convert_to_tensor(value)
        for name, value in model.block_table.contents(rows[None]).items()
    }
    embeddings = model.embed_candidates(found, training=False)
    logits = model.read(
        inputs,
        ops.convert_to_tensor([query.mask_positions], "int32"),
        found,
        training=False,
    )
    outputs = _outputs(queries, embeddings, logits, query.mask_ids, mask)
    # A softmax of its own: what was added takes nothing from the others.
    alone = _outputs(
        queries, embeddings, logits, query.mask_ids, mask & ~is_added
    )
    return Reading(
        rows=[-1, *rows[mask[1:]].tolist()],
        is_added=is_added[mask],
        left_out=_left_out(chosen, model.num_retrieved, num_searched),
        marginal=float(outputs.pop("marginal")),
        retrieved=float(alone["marginal"]),
        **{name: value[mask] for name, value in outputs.items()},
    )


def _find(model, query, queries, num_searched):
    """Rows of the table and whether they may be read, as arrays."""
    found, allowed = model.find_candidates(
        {
            "candidate_block_ids": ops.arange(num_searched, dtype="int32")[
                None
            ],
            # It is not known to be from a block: texts are compared.
            "block_id": ops.convert_to_tensor([-1], "int32"),
            "sentence_ids": ops.convert_to_tensor(
                [query.sentence_ids], "int32"
            ),
        },
        queries,
    )
    return np.asarray(found["block_ids"])[0], np.asarray(allowed)[0]


def _left_out(chosen, num_retrieved, num_searched):
    # What comes after the last that was needed was not left out.
    if len(chosen) == num_retrieved:
        num_searched = max(chosen)
    return [row for row in range(num_searched) if row not in chosen]


def _outputs(queries, embeddings, logits, mask_ids, mask):
    """Arrays over all candidates, as `Reading` names them."""
    mask = ops.convert_to_tensor(mask[None])
    weights = ops.ones((1, len(mask_ids)))
    ids = ops.convert_to_tensor([[mask_ids] * logits.shape[1]], "int32")
    log_probs = losses.masked_lm_log_probs(logits, ids)
    log_priors = losses.retrieval_log_probs(queries, embeddings, mask)
    likelihood = log_probs, log_priors, weights, mask
    outputs = {
        "log_priors": log_priors,
        "log_probs": ops.sum(log_probs, axis=-1),
        "gradients": metrics.retrieval_gradient(
            *likelihood, marginalization="span"
        ),
        "marginal": losses.marginal_log_likelihood(
            *likelihood, marginalization="span"
        ),
        "probs": ops.softmax(logits, axis=-1),
    }
    return {name: np.asarray(value)[0] for name, value in outputs.items()}
