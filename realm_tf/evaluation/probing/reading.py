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
from realm_tf.models.realm import NUM_SPARE
from realm_tf.models.realm import RealmModel
from realm_tf.text.packing import pad
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
        min(num_retrieved + NUM_SPARE, index.num_blocks),
    )
    searched = np.asarray(searched)[0].tolist()
    ids = list(dict.fromkeys([*searched, *block_ids]))
    read = dict(zip(ids, _read_blocks(blocks, ids), strict=True))
    model = _make_realm_model(loaded, query, recipe)
    chosen, left_out = _choose(
        [read[each] for each in searched], model, query, num_retrieved
    )
    added = [each for each in dict.fromkeys(block_ids) if each not in chosen]
    rows = [read[each] for each in [*chosen, *added]]
    # A batch has a block, even where only the null block may be read.
    scores, logits = (
        each[: 1 + len(rows)]
        for each in _read(model, query, rows or [read[ids[0]]])
    )
    return _probed(
        query,
        rows,
        scores,
        special.log_softmax(logits, axis=-1),
        loaded.tokenizer.vocabulary,
        num_added=len(added),
        left_out=left_out,
    )


def _choose(searched, model, query, num_retrieved):
    """Ids of the best blocks that may be read, and of those left out."""
    allowed = candidates.may_be_read(
        _contents(searched, model.max_block_length),
        # It is not known to be from a block: texts are compared.
        ops.convert_to_tensor([-1], "int32"),
        ops.convert_to_tensor([query.sentence_ids], "int32"),
    )
    places = np.flatnonzero(np.asarray(allowed)[0])[:num_retrieved]
    # What comes after the last that was needed was not left out.
    end = places[-1] if len(places) == num_retrieved else len(searched)
    return (
        [searched[place].block_id for place in places],
        [searched[p].block_id for p in range(end) if p not in places],
    )


def _probed(query, rows, scores, log_probs, vocabulary, *, num_added, left_out):
    """`Probed` of the null block and `rows`, those added being the last."""
    num_retrieved = len(rows) - num_added
    priors = special.log_softmax(scores)
    # log p(y | z, x) and log p(y, z | x), of all masked wordpieces together.
    masks = np.arange(len(query.mask_ids))
    of_answer = log_probs[:, masks, query.mask_ids].sum(axis=1)
    joint = priors + of_answer
    marginal = special.logsumexp(joint)
    # A softmax of its own: what was added takes nothing from the others.
    own = slice(1 + num_retrieved)
    retrieved = special.logsumexp(
        special.log_softmax(scores[own]) + of_answer[own]
    )
    # Guu et al., 2020, section 3.3.
    gradients = np.exp(joint - marginal) - np.exp(priors)
    if not query.answer_ids:
        marginal = retrieved = None
        of_answer = gradients = [None] * len(scores)
    read = [(None, "", ""), *((b.block_id, b.title, b.text) for b in rows)]
    null, *others = (
        ProbedBlock(
            *read[number],
            is_added=number > num_retrieved,
            retrieval_log_prob=float(priors[number]),
            answer_log_prob=_float(of_answer[number]),
            gradient=_float(gradients[number]),
            predictions=_best(np.exp(log_probs[number]), vocabulary),
        )
        for number in range(len(read))
    )
    others.sort(key=lambda block: -block.retrieval_log_prob)
    return Probed(
        query.text,
        [[vocabulary[i] for i in answer] for answer in query.answer_ids],
        [null, *others],
        _float(marginal),
        _float(retrieved),
        _best(
            np.einsum("k,kmv->mv", np.exp(priors), np.exp(log_probs)),
            vocabulary,
        ),
        left_out,
    )


def _float(value):
    return None if value is None else float(value)


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
        open_qa.block_embedder.max_length,
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
        found[lengths] = [len(row) for row in rows]
        found[ids] = pad(rows, max(found[lengths]))
    return {
        name: ops.convert_to_tensor([value], "int32")
        for name, value in found.items()
    }


def _read(model, query, blocks):
    """Scores and logits of the null block and some blocks, in float64.

    Returns:
        f(x, z) `(1 + num_blocks,)`; `(1 + num_blocks, num_masks,
        vocabulary_size)`.
    """
    contents = _contents(blocks, model.max_block_length)
    inputs = query.inputs()
    embeddings = model.embed_candidates(contents, training=False)
    logits = model.read(
        inputs,
        ops.convert_to_tensor([query.mask_positions], "int32"),
        contents,
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
