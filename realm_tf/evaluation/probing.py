"""A masked sentence, read with each block that a model retrieves for it."""

import functools
from typing import NamedTuple

import numpy as np
from scipy import special

from realm_tf.artifacts import matching
from realm_tf.configs.pretrain import PretrainRecipe
from realm_tf.errors import InputError
from realm_tf.models.realm import NUM_SPARE
from realm_tf.models.realm import may_be_read
from realm_tf.text import packing
from realm_tf.text.tokenizer import MASK


class Reading(NamedTuple):
    """A masked sentence read with one block, or with all of them.

    Args:
        block: `schema.Block`; `None` for the null block and for all blocks.
        prior: float. p(z | x) among the null block and the retrieved blocks.
        likelihood: float. p(y | z, x) of all masked wordpieces together;
            meaningless without an answer.
        gradient: float. r(z) = [p(y | z, x) / p(y | x) - 1] p(z | x): above 0
            for a block with which the answer is more probable than on average.
        predictions: list of (wordpiece, probability), the best for each mask.
    """

    block: object
    prior: float
    likelihood: float
    gradient: float
    predictions: list[tuple[str, float]]


def probe(loaded, blocks, index, text, answers, num_retrieved):
    """Reads a masked sentence with the null block and retrieved blocks.

    Args:
        loaded: `LoadedModel` with a masked-LM head.
        blocks: `Blocks`.
        index: `retrieval.index.Index` of the model and the blocks.
        text: str. With `[MASK]` in it.
        answers: list of str. One for each `[MASK]`, or none: then each is one
            wordpiece.
        num_retrieved: int. Blocks besides the null block.

    Returns:
        list of `Reading`: of all blocks together (its likelihood is p(y | x)),
        of the null block, and of each retrieved block, best first.

    Raises:
        InputError: if the text or the answers do not fit.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    sentence, places = _mask(text, answers, tokenizer)
    query, masked = np.array(sentence), np.array(sentence)[places]
    query[places] = tokenizer.mask_id
    longest = model.reader.encoder.max_sequence_length
    # The null block adds a [SEP].
    limit = min(model.query_embedder.max_length, longest - 1)
    what = "The text with [CLS] and [SEP]"
    matching.check_length(2 + len(query), limit, what=what, mend="shorten it")
    join = functools.partial(
        packing.join_bert,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
    )
    embedding = model.embed_queries(join([(query,)], max_length=2 + len(query)))
    num_searched = min(num_retrieved + NUM_SPARE, index.num_blocks)
    scores, ids = map(np.asarray, index.search(embedding, num_searched))
    found = [next(blocks.read(each, each + 1)) for each in ids[0].tolist()]
    # Bodies are cut as in pre-training, by default the paper's.
    recipe = PretrainRecipe().flat() | loaded.metadata["parameters"]
    bodies = [b.token_ids[: recipe["max_block_length"]] for b in found]
    rows = _choose(found, bodies, sentence)[:num_retrieved]
    null = model.embed_blocks(
        join([((), ())], max_length=3, segment_ids=loaded.block_segment_ids)
    )
    null_score = np.sum(np.asarray(embedding) * np.asarray(null))
    priors = np.array([1, *special.softmax([null_score, *scores[0, rows]])])
    read = join(
        [(query, body) for body in ((), *(bodies[row] for row in rows))],
        max_length=min(longest, 3 + len(query) + max(map(len, bodies))),
    )
    positions = np.tile(1 + np.array(places, "int32"), (1 + len(rows), 1))
    logits = model.knowledge_augmented_encoder(
        {**read, "mask_positions": positions}
    )
    probs = special.softmax(np.asarray(logits, "float64"), axis=-1)
    # In front, all of them together.
    probs = np.stack([np.tensordot(priors[1:], probs, 1), *probs])
    likelihoods = probs[:, np.arange(len(places)), masked].prod(axis=1)
    likelihoods[0] = priors[1:] @ likelihoods[1:]
    # Guu et al., 2020, section 3.3.
    gradients = (likelihoods / likelihoods[0] - 1) * priors
    best = [
        [(tokenizer.vocabulary[p.argmax()], p.max()) for p in each]
        for each in probs
    ]
    read_with = [None, None, *(found[row] for row in rows)]
    return [*map(Reading, read_with, priors, likelihoods, gradients, best)]


def _mask(text, answers, tokenizer):
    """Wordpieces of the sentence with its answers, and places of the answers.

    Each text beside a `[MASK]` is tokenized alone, so that the masked query
    depends on an answer only by its number of wordpieces.
    """
    first, *parts = text.split(MASK)
    if not parts or len(answers) not in (0, len(parts)):
        raise InputError(
            f"The text holds {len(parts)} {MASK}: expected one or more, and as "
            f"many --answer, or none. Received: {len(answers)}"
        )
    pieces = [tokenizer.tokenize(answer).ids for answer in answers]
    for answer, ids in zip(answers, pieces, strict=True):
        if not ids or tokenizer.unk_id in ids:
            raise InputError(
                f"--answer {answer!r} is not of the model's vocabulary."
            )
    sentence, places = tokenizer.tokenize(first).ids, []
    pieces = pieces or [[tokenizer.mask_id]] * len(parts)
    for ids, part in zip(pieces, parts, strict=True):
        places += range(len(sentence), len(sentence) + len(ids))
        sentence = [*sentence, *ids, *tokenizer.tokenize(part).ids]
    return sentence, places


def _choose(found, bodies, sentence):
    """Places of the blocks that pre-training would read for a sentence."""
    lengths = [len(body) for body in bodies]
    contents = {
        "block_ids": [block.block_id for block in found],
        "token_ids": packing.pad(bodies, max(lengths)),
        "lengths": lengths,
    }
    allowed = may_be_read(
        {name: np.array([row], "int32") for name, row in contents.items()},
        # Its block is unknown: texts are compared.
        np.array([-1], "int32"),
        np.array([sentence], "int32"),
    )
    return np.flatnonzero(np.asarray(allowed)[0])
