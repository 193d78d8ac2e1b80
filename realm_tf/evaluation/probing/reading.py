"""Reads a masked query with each of its candidates, for `realm probe`."""

import numpy as np
from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.artifacts import schema
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.configs import pretrain as configs
from realm_tf.evaluation.probing.masked_query import Query
from realm_tf.evaluation.probing.probed import Probed
from realm_tf.evaluation.probing.probed import ProbedBlock
from realm_tf.evaluation.probing.probed import Wordpiece
from realm_tf.models.block_table import BlockTable
from realm_tf.models.realm import RealmModel

# Predictions of each mask that are kept (our choice).
_NUM_PREDICTIONS = 5


def probe(
    loaded, blocks, index, query: Query, *, num_retrieved: int, block_ids=()
) -> Probed:
    """Retrieves blocks for a masked query, and reads it with each.

    It does what `RealmModel` does, with some more candidates.

    Args:
        loaded: `LoadedModel` with a masked-LM head.
        blocks: `Blocks`, packed or not.
        index: `retrieval.index.Index` of the model and the blocks.
        query: `Query`.
        num_retrieved: int. Blocks besides the null block.
        block_ids: list of int. Blocks that are read in any case.

    Returns:
        `Probed`.
    """
    searched = _search(loaded, index, query, num_retrieved)
    ids = list(dict.fromkeys([*searched, *block_ids]))
    candidates = _read_blocks(blocks, ids)
    model = _make_realm_model(loaded, candidates, query, num_retrieved)
    rows, is_added, left_out, outputs = _read(
        model,
        query,
        num_searched=len(searched),
        wanted=[ids.index(each) for each in dict.fromkeys(block_ids)],
    )
    has_answer = bool(query.answer_ids)
    vocabulary = loaded.tokenizer.vocabulary
    marginals = outputs.pop("marginal"), outputs.pop("retrieved")
    null, *others = (
        _probed_block(
            candidates[row] if row >= 0 else None,
            {name: value[number] for name, value in outputs.items()},
            vocabulary,
            is_added=bool(is_added[number]),
            has_answer=has_answer,
        )
        for number, row in enumerate(rows)
    )
    others.sort(key=lambda block: -block.retrieval_log_prob)
    marginal_probs = np.einsum(
        "k,kmv->mv", np.exp(outputs["log_priors"]), outputs["probs"]
    )
    return Probed(
        query.text,
        [[vocabulary[i] for i in answer] for answer in query.answer_ids],
        [null, *others],
        *(map(float, marginals) if has_answer else (None, None)),
        _best(marginal_probs, vocabulary),
        [ids[row] for row in left_out],
    )


def _read(model, query, *, num_searched, wanted):
    """Reads the query with the null block and those that take part.

    Args:
        model: `RealmModel`. The first `num_searched` rows of its table are
            what was searched, best first.
        query: `Query`.
        num_searched: int.
        wanted: list of int. Rows that are read in any case.

    Returns:
        rows: list of int. Those in the block table, -1 for the null block,
            which is the first.
        is_added: bool array `(num_candidates,)`. Not retrieved, but wanted.
        left_out: list of int. Rows that were searched and passed over.
        outputs: dict of float arrays `(num_candidates,)`, as `_outputs`, and
            `retrieved`, the `marginal` without what was added.
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
    marginal = outputs.pop("marginal")
    # A softmax of its own: what was added takes nothing from the others.
    alone = _outputs(
        queries, embeddings, logits, query.mask_ids, mask & ~is_added
    )
    return (
        [-1, *rows[mask[1:]].tolist()],
        is_added[mask],
        _left_out(chosen, model.num_retrieved, num_searched),
        {
            **{name: value[mask] for name, value in outputs.items()},
            "marginal": marginal,
            "retrieved": alone["marginal"],
        },
    )


def _probed_block(block, outputs, vocabulary, *, is_added, has_answer):
    return ProbedBlock(
        block_id=block.block_id if block else None,
        title=block.title if block else "",
        text=block.text if block else "",
        is_added=is_added,
        retrieval_log_prob=float(outputs["log_priors"]),
        answer_log_prob=float(outputs["log_probs"]) if has_answer else None,
        gradient=float(outputs["gradients"]) if has_answer else None,
        predictions=_best(outputs["probs"], vocabulary),
    )


def _best(probs, vocabulary):
    """The best wordpieces of each mask, of `(num_masks, vocabulary_size)`."""
    order = np.argsort(-probs, axis=1, kind="stable")[:, :_NUM_PREDICTIONS]
    return [
        [Wordpiece(vocabulary[i], float(row[i])) for i in best]
        for row, best in zip(probs, order, strict=True)
    ]


def _recipe_of(loaded):
    """What a model was pre-trained with, else the paper's numbers."""
    paper = configs.PretrainRecipe().flat()
    return {**paper, **loaded.metadata["parameters"]}


def _search(loaded, index, query, num_retrieved):
    """Block ids, best first, with spare ones as in pre-training."""
    num_spare = _recipe_of(loaded)["num_spare"]
    _, block_ids = index.search(
        loaded.model.embed_queries(query.inputs()),
        min(num_retrieved + num_spare, index.num_blocks),
    )
    return np.asarray(block_ids)[0].tolist()


def _read_blocks(blocks, ids):
    """`schema.Block` of each id; of packed ones, what the wordpieces say."""
    if not blocks.is_packed:
        return [next(blocks.read(each, each + 1)) for each in ids]
    from realm_tf.text.tokenizer import to_text

    packed = PackedBlocks(blocks)
    return [
        schema.Block(
            each,
            "",
            *(
                to_text([packed.wordpieces[i] for i in part])
                for part in (found.title_ids, found.token_ids)
            ),
            title_ids=found.title_ids,
            token_ids=found.token_ids,
        )
        for each in ids
        for found in [packed[each]]
    ]


def _make_realm_model(loaded, blocks, query, num_retrieved):
    """`RealmModel` over some blocks, which are cut as in its training."""
    open_qa, recipe = loaded.model, _recipe_of(loaded)
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
    """Arrays over all candidates, the null block first.

    `log_priors` log p(z | x) in nats, `log_probs` log p(y | z, x), `gradients`
    r(z), `probs` `(num_candidates, num_masks, vocabulary_size)`; and
    `marginal`, log p(y | x).
    """
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
