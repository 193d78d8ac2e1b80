"""Shows what a pre-trained model puts in the place of [MASK], block by block.

  realm probe "An equilateral triangle is easily constructed because 3 is a \\
      [MASK] prime." --answer Fermat --model DIR --blocks DIR --index DIR
  realm probe ... --block-id 17     the same, with a block that you choose

Table 3 of the paper for any sentence: p(y|x) of the answer y without
retrieval, from each retrieved block alone, and with all of them. One [MASK]
stands for one whole answer, however many wordpieces that has; for several
[MASK], give several --answer in their order. Without --answer, the best
predictions for each [MASK] are shown, which then is a single wordpiece; write
[MASK] [MASK] for two.

The null block is always a candidate. Blocks that hold the sentence itself, or
say the same as a better one, are left out, as in pre-training; --block-id
reads any block.
"""

import dataclasses
import json
import math

import numpy as np

from realm_tf.artifacts import packed_blocks
from realm_tf.errors import InputError
from realm_tf.evaluation.probing import masked_query as probe_inputs
from realm_tf.training import run_directory

# Guu et al., 2020, section 4.3: 8 candidates, the null block among them.
NUM_RETRIEVED = 7
# Predictions of each mask that are kept (our choice).
_NUM_PREDICTIONS = 5


@dataclasses.dataclass(frozen=True)
class Wordpiece:
    """A prediction for a mask.

    Args:
        wordpiece: str.
        probability: float.
    """

    wordpiece: str
    probability: float


@dataclasses.dataclass(frozen=True)
class ProbedBlock:
    """A block that the sentence was read with.

    Args:
        block_id: int, or `None` for the null block.
        title: str. Of packed blocks, as the wordpieces say it.
        text: str. The same.
        is_added: bool. Whether it was not retrieved, but asked for.
        retrieval_log_prob: float. log p(z | x) among all candidates, in nats.
        answer_log_prob: float. log p(y | z, x), of all masked wordpieces
            together; `None` without an answer.
        gradient: float. r(z) = [p(y | z, x) / p(y | x) - 1] p(z | x), above 0
            where the block predicts better than the candidates do on average;
            `None` without an answer.
        predictions: list of lists of `Wordpiece`. For each masked wordpiece
            the best ones, best first.
    """

    block_id: int | None
    title: str
    text: str
    is_added: bool
    retrieval_log_prob: float
    answer_log_prob: float | None
    gradient: float | None
    predictions: list[list[Wordpiece]]


@dataclasses.dataclass(frozen=True)
class Probe:
    """A masked sentence with its candidates.

    Args:
        text: str. As it was given.
        answers: list of lists of str. The wordpieces of each.
        blocks: list of `ProbedBlock`. The null block, then by p(z | x).
        marginal_log_prob: float. log p(y | x) over `blocks`, in nats; `None`
            without an answer.
        retrieved_log_prob: float. The same over the null block and what was
            retrieved: what the model itself says; `None` without an answer.
        predictions: list of lists of `Wordpiece`. As `ProbedBlock`'s, over
            `blocks`.
        left_out: list of int. Blocks that would have been retrieved, but hold
            the sentence or say the same as a better one.
    """

    text: str
    answers: list[list[str]]
    blocks: list[ProbedBlock]
    marginal_log_prob: float | None
    retrieved_log_prob: float | None
    predictions: list[list[Wordpiece]]
    left_out: list[int]


def add_arguments(parser):
    """Arguments of `realm probe`."""
    parser.add_argument("text", help="a sentence with [MASK] in it")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        help="what [MASK] stands for; once for each [MASK], in their order "
        "(default: show the best predictions)",
    )
    parser.add_argument(
        "--model",
        required=True,
        help="model directory with a masked-LM head: of `realm pretrain`",
    )
    parser.add_argument(
        "--blocks",
        required=True,
        help="directory of `realm chunk`, or of `realm pack`",
    )
    parser.add_argument(
        "--index",
        required=True,
        help="index directory of this model and these blocks",
    )
    parser.add_argument(
        "--num-retrieved",
        type=int,
        default=NUM_RETRIEVED,
        help="blocks besides the null block (default: %(default)s)",
    )
    parser.add_argument(
        "--block-id",
        type=int,
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="read these blocks, too",
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON"
    )


def run(args, extra):
    """`realm probe`."""
    # The shell may hand over bytes that are no text.
    text, *answer = (
        each.encode("utf-8", "replace").decode("utf-8")
        for each in (args.text, *args.answer)
    )
    found = probe(
        text,
        args.model,
        args.blocks,
        args.index,
        answer=answer,
        num_retrieved=args.num_retrieved,
        block_id=args.block_id,
    )
    if args.json:
        print(to_json(found))
        return
    from realm_tf.evaluation.probing import table as probe_table

    probe_table.show(found)


def to_json(found: Probe) -> str:
    """Everything about a probe, with probabilities beside their logarithms.

    Args:
        found: `Probe`.
    """
    record = dataclasses.asdict(found)
    for each in (record, *record["blocks"]):
        for name in [name for name in each if name.endswith("_log_prob")]:
            log_prob = each[name]
            each[name.replace("_log_prob", "_probability")] = (
                None if log_prob is None else math.exp(log_prob)
            )
    return json.dumps(record, ensure_ascii=False, indent=2)


def probe(
    text: str,
    model: str,
    blocks: str,
    index: str,
    *,
    answer=(),
    num_retrieved: int = NUM_RETRIEVED,
    block_id=(),
) -> Probe:
    """What is retrieved for a masked sentence, and what each block says.

        log p(y | z, x) = sum_m log p(y_m | z, x)
        p(y | x) = sum_z p(z | x) p(y | z, x)

    over the null block, the best `num_retrieved` blocks of the index that
    pre-training would allow, and those of `block_id`. This is the paper's span
    form; `RealmModel`'s loss with `marginalization="span"` is -log p(y | x)
    for each masked wordpiece. p(z | x) is the softmax of the towers as they
    are. Blocks are cut to the lengths that the model was pre-trained with.

    Args:
        text: str. With one or more `[MASK]`, each a word of its own: what
            stands beside it is tokenized without it.
        model: str. Model directory with a masked-LM head.
        blocks: str. Blocks directory, or one that `realm pack` made of it.
        index: str. Index directory of this model and these blocks.
        answer: list of str. One for each `[MASK]`, in their order; every
            wordpiece of it becomes one. Defaults to none.
        num_retrieved: int. Defaults to `7`.
        block_id: list of int. Blocks to read besides. Defaults to none.

    Returns:
        `Probe`.

    Raises:
        InputError: if the model has no masked-LM head, the directories do not
            belong together, or an argument does not fit the others.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.1 and
        3.3, and table 3.
    """
    from realm_tf.answering.closed_book import masked_lm_encoder
    from realm_tf.artifacts import index_files
    from realm_tf.artifacts import model_directory
    from realm_tf.evaluation.probing import reading as probe_reading

    if num_retrieved < 1:
        raise InputError(
            "--num-retrieved must be at least 1. Received: --num-retrieved "
            f"{num_retrieved}"
        )
    loaded = model_directory.load(model)
    masked_lm_encoder(loaded, model=model)
    metadata = run_directory.check_blocks(blocks, loaded, model=model)
    for number in block_id:
        if not 0 <= number < metadata["num_blocks"]:
            raise InputError(
                f"{blocks} holds the blocks 0 to {metadata['num_blocks'] - 1}."
                f" Received: --block-id {number}"
            )
    index_files.check_parents(
        index,
        block_tower=loaded.metadata["block_tower"],
        blocks=packed_blocks.blocks_fingerprint(metadata),
    )
    query = probe_inputs.make_query(text, list(answer), loaded)
    searched = probe_reading.search(
        loaded, index_files.load(index), query, num_retrieved
    )
    ids = list(dict.fromkeys([*searched, *block_id]))
    reader = probe_inputs.BlockReader(blocks, metadata)
    candidates = [reader.read(each) for each in ids]
    reading = probe_reading.read(
        probe_reading.make_realm_model(
            loaded, candidates, query, num_retrieved
        ),
        query,
        num_searched=len(searched),
        wanted=[ids.index(each) for each in dict.fromkeys(block_id)],
    )
    return _make_probe(text, query, candidates, reading, loaded.tokenizer)


def _make_probe(text, query, candidates, reading, tokenizer):
    vocabulary = tokenizer.vocabulary
    has_answer = bool(query.answer_ids)

    def probed(number, row):
        block = candidates[row] if row >= 0 else None
        return ProbedBlock(
            block_id=block.block_id if block else None,
            title=block.title if block else "",
            text=block.text if block else "",
            is_added=bool(reading.is_added[number]),
            retrieval_log_prob=float(reading.log_priors[number]),
            answer_log_prob=float(reading.log_probs[number])
            if has_answer
            else None,
            gradient=float(reading.gradients[number]) if has_answer else None,
            predictions=_best(reading.probs[number], vocabulary),
        )

    null, *others = (probed(*each) for each in enumerate(reading.rows))
    others.sort(key=lambda block: -block.retrieval_log_prob)
    marginal_probs = np.einsum(
        "k,kmv->mv", np.exp(reading.log_priors), reading.probs
    )
    return Probe(
        text=text,
        answers=[[vocabulary[i] for i in ids] for ids in query.answer_ids],
        blocks=[null, *others],
        marginal_log_prob=reading.marginal if has_answer else None,
        retrieved_log_prob=reading.retrieved if has_answer else None,
        predictions=_best(marginal_probs, vocabulary),
        left_out=[candidates[row].block_id for row in reading.left_out],
    )


def _best(probs, vocabulary):
    """The best wordpieces of each mask, of `(num_masks, vocabulary_size)`."""
    order = np.argsort(-probs, axis=1, kind="stable")[:, :_NUM_PREDICTIONS]
    return [
        [Wordpiece(vocabulary[i], float(row[i])) for i in best]
        for row, best in zip(probs, order, strict=True)
    ]
