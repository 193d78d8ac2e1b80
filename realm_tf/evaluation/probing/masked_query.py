"""The masked sentence of `realm probe` as wordpieces."""

import dataclasses

from realm_tf.artifacts import matching
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import MASK


@dataclasses.dataclass(frozen=True)
class Query:
    """A masked sentence as wordpieces, as `masking.MaskedExample` has them.

    Args:
        text: str. As it was given.
        token_ids: list of int. [CLS], the sentence with [MASK] in it, [SEP].
        mask_positions: list of int. Places in `token_ids`, ascending.
        mask_ids: list of int. What stands for the masks; [MASK] where there
            are no answers.
        sentence_ids: list of int. The sentence with these.
        answer_ids: list of lists of int. `mask_ids` of each answer; empty
            without answers.
    """

    text: str
    token_ids: list[int]
    mask_positions: list[int]
    mask_ids: list[int]
    sentence_ids: list[int]
    answer_ids: list[list[int]]

    def inputs(self) -> dict:
        """A batch of it alone, as the query tower takes it."""
        from keras import ops

        token_ids = ops.convert_to_tensor([self.token_ids], "int32")
        return {
            "token_ids": token_ids,
            "segment_ids": ops.zeros_like(token_ids),
            "padding_mask": ops.ones_like(token_ids),
        }


def make_query(text: str, answers: list[str], loaded) -> Query:
    """Masks all wordpieces of the answers.

    What stands beside a `[MASK]` is tokenized without it, as if it were a
    word of its own: the masked query is the same whatever the answer is, but
    for the number of masks.

    Args:
        text: str. With `[MASK]` in it.
        answers: list of str. One for each `[MASK]`, or none: then each is one
            wordpiece.
        loaded: `LoadedModel`.

    Returns:
        `Query`.

    Raises:
        InputError: if there is no `[MASK]`, another number of answers, an
            answer that the vocabulary lacks, or more than the encoders take.
    """
    tokenizer = loaded.tokenizer
    first, *parts = text.split(MASK)
    if not parts:
        raise InputError(
            f"The text holds no {MASK}: write it where the answer belongs, as "
            f'in "3 is a {MASK} prime.". Received: {text!r}'
        )
    if answers and len(answers) != len(parts):
        raise InputError(
            f"The text holds {len(parts)} {MASK}, but --answer is given "
            f"{len(answers)} times: give one for each in their order, or none."
        )
    answer_ids = [_answer_ids(answer, tokenizer) for answer in answers]
    sentence = tokenizer.tokenize(first).ids
    places = []
    masked = answer_ids or [[tokenizer.mask_id]] * len(parts)
    for ids, part in zip(masked, parts, strict=True):
        places += range(len(sentence), len(sentence) + len(ids))
        sentence = [*sentence, *ids, *tokenizer.tokenize(part).ids]
    token_ids = [tokenizer.cls_id, *sentence, tokenizer.sep_id]
    for place in places:
        token_ids[1 + place] = tokenizer.mask_id
    matching.check_length(
        len(token_ids),
        min(
            loaded.model.query_embedder.max_length,
            # The null block's [SEP].
            loaded.model.reader.encoder.max_sequence_length - 1,
        ),
        what="The text with [CLS] and [SEP]",
        mend="shorten it",
    )
    return Query(
        text=text,
        token_ids=token_ids,
        mask_positions=[1 + place for place in places],
        mask_ids=[sentence[place] for place in places],
        sentence_ids=sentence,
        answer_ids=answer_ids,
    )


def _answer_ids(answer, tokenizer):
    ids = tokenizer.tokenize(answer).ids
    if not ids or tokenizer.unk_id in ids:
        what = "holds what the model's vocabulary lacks" if ids else "is empty"
        raise InputError(
            f"--answer {answer!r} {what}, so it has no probability: give words "
            "that the vocabulary knows."
        )
    return ids
