"""Reads a masked query with each of its candidates, for `realm probe`."""

import numpy as np
from keras import ops
from scipy import special

from realm_tf import losses
from realm_tf.artifacts import schema
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.configs import pretrain as configs
from realm_tf.evaluation.probing.masked_query import Query
from realm_tf.evaluation.probing.probed import Probed
from realm_tf.evaluation.probing.probed import ProbedBlock
from realm_tf.evaluation.probing.probed import Wordpiece
from realm_tf.models import candidates
from realm_tf.models.realm import RealmModel
from realm_tf.text.tokenizer import to_text

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
    # What the model was pre-trained with, else the paper's numbers.
    recipe = {
        **configs.PretrainRecipe().flat(),
        **loaded.metadata["parameters"],
    }
    # Spare ones as in pre-training.
    _, searched = index.search(
        loaded.model.embed_queries(query.inputs()),
        min(num_retrieved + recipe["num_spare"], index.num_blocks),
    )
    searched = np.asarray(searched)[0].tolist()
    ids = list(dict.fromkeys([*searched, *block_ids]))
    read = _read_blocks(blocks, ids)
    model = _make_realm_model(loaded, query, recipe)
    contents = _contents(read, model.max_block_length)
    allowed = np.asarray(
        candidates.may_be_read(
            contents,
            # It is not known to be from a block: texts are compared.
            ops.convert_to_tensor([-1], "int32"),
            ops.convert_to_tensor([query.sentence_ids], "int32"),
        )
    )[0, : len(searched)]
    chosen = np.flatnonzero(allowed)[:num_retrieved].tolist()
    # What comes after the last that was needed was not left out.
    end = chosen[-1] if len(chosen) == num_retrieved else len(searched)
    wanted = dict.fromkeys(ids.index(each) for each in block_ids)
    added = [row for row in wanted if row not in chosen]
    rows = [*chosen, *added]
    # A batch has a block, even where only the null block may be read.
    scores, logits = (
        each[: 1 + len(rows)]
        for each in _read(model, query, contents, rows or [0])
    )
    log_probs = special.log_softmax(logits, axis=-1)
    masks = np.arange(len(query.mask_ids))
    priors = special.log_softmax(scores)
    # log p(y | z, x) and log p(y, z | x), of all masked wordpieces together.
    of_answer = log_probs[:, masks, query.mask_ids].sum(axis=1)
    joint = priors + of_answer
    marginal = special.logsumexp(joint)
    # A softmax of its own: what was added takes nothing from the others.
    own = slice(1 + len(chosen))
    retrieved = special.logsumexp(
        special.log_softmax(scores[own]) + of_answer[own]
    )
    has_answer = bool(query.answer_ids)
    vocabulary = loaded.tokenizer.vocabulary
    null, *others = (
        ProbedBlock(
            block_id=block.block_id if block else None,
            title=block.title if block else "",
            text=block.text if block else "",
            is_added=row in added,
            retrieval_log_prob=float(priors[number]),
            answer_log_prob=float(of_answer[number]) if has_answer else None,
            # Guu et al., 2020, section 3.3.
            gradient=float(
                np.exp(joint[number] - marginal) - np.exp(priors[number])
            )
            if has_answer
            else None,
            predictions=_best(np.exp(log_probs[number]), vocabulary),
        )
        for number, (row, block) in enumerate(
            [(None, None), *((row, read[row]) for row in rows)]
        )
    )
    others.sort(key=lambda block: -block.retrieval_log_prob)
    return Probed(
        query.text,
        [[vocabulary[i] for i in answer] for answer in query.answer_ids],
        [null, *others],
        float(marginal) if has_answer else None,
        float(retrieved) if has_answer else None,
        _best(
            np.einsum("k,kmv->mv", np.exp(priors), np.exp(log_probs)),
            vocabulary,
        ),
        [ids[row] for row in range(end) if row not in chosen],
    )


def _read_blocks(blocks, ids):
    """`schema.Block` of each id; of packed ones, what the wordpieces say."""
    if not blocks.is_packed:
        return [next(blocks.read(each, each + 1)) for each in ids]
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


def _make_realm_model(loaded, query, recipe):
    """`RealmModel`, which cuts blocks as in its training."""
    open_qa = loaded.model
    max_block_length = min(
        recipe["max_block_length"],
        open_qa.block_embedder.encoder.max_sequence_length,
    )
    # A query longer than those in training takes nothing away from blocks.
    max_joint_length = max(
        recipe["max_joint_length"], len(query.token_ids) + max_block_length
    )
    return RealmModel(
        open_qa.query_embedder,
        open_qa.block_embedder,
        open_qa.knowledge_augmented_encoder,
        None,
        None,
        cls_id=loaded.tokenizer.cls_id,
        sep_id=loaded.tokenizer.sep_id,
        block_segment_ids=loaded.block_segment_ids,
        score_scale=open_qa.score_scale,
        max_block_length=max_block_length,
        max_joint_length=min(
            max_joint_length, open_qa.reader.encoder.max_sequence_length
        ),
    )


def _contents(blocks, max_length):
    """Blocks as candidates of a batch of one query, see `may_be_read`."""
    found = {"block_ids": [block.block_id for block in blocks]}
    for ids, lengths, rows in (
        ("token_ids", "lengths", [block.token_ids for block in blocks]),
        ("title_ids", "title_lengths", [block.title_ids for block in blocks]),
    ):
        rows = [row[:max_length] for row in rows]
        table = np.zeros((len(rows), max(map(len, rows))), "int32")
        for number, row in enumerate(rows):
            table[number, : len(row)] = row
        found |= {ids: table, lengths: [len(row) for row in rows]}
    return {
        name: ops.convert_to_tensor([value], "int32")
        for name, value in found.items()
    }


def _read(model, query, contents, rows):
    """Scores and logits of the null block and some rows, in float64.

    Returns:
        f(x, z) `(1 + num_rows,)`; `(1 + num_rows, num_masks,
        vocabulary_size)`.
    """
    found = {
        name: ops.take(value, ops.convert_to_tensor(rows, "int32"), axis=1)
        for name, value in contents.items()
    }
    inputs = query.inputs()
    embeddings = model.embed_candidates(found, training=False)
    logits = model.read(
        inputs,
        ops.convert_to_tensor([query.mask_positions], "int32"),
        found,
        training=False,
    )
    queries = model.score_scale * model.query_embedder(inputs)
    scores = losses.relevance_scores(queries, embeddings)
    return (
        np.asarray(scores, "float64")[0],
        np.asarray(logits, "float64")[0],
    )


def _best(probs, vocabulary):
    """The best wordpieces of each mask, of `(num_masks, vocabulary_size)`."""
    order = np.argsort(-probs, axis=1, kind="stable")[:, :_NUM_PREDICTIONS]
    return [
        [Wordpiece(vocabulary[i], float(row[i])) for i in best]
        for row, best in zip(probs, order, strict=True)
    ]
