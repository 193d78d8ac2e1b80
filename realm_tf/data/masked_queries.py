"""From an annotated passage to a masked query: the x and y of pre-training.

Masking draws on wordpieces alone (`tokenized_passages`). Three modes over the
same passages:

- `"salient"` (REALM): one salient span of the passage, uniformly; every
  wordpiece that lies wholly in it becomes [MASK].
- `"uniform"` (BERT): a sentence, uniformly; 15 % of its wordpieces.
- `"random_span"` (SpanBERT): a sentence, uniformly; spans of whole words with
  geometric lengths until 15 % of its wordpieces are masked.

The last two are the ablations of REALM's table 2.
"""

import dataclasses

import numpy as np

from realm_tf.data.example_batches import ExampleBatches
from realm_tf.data.tokenized_passages import TokenizedPassage
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.errors import InputError
from realm_tf.text.packing import pad

MODES = ("salient", "uniform", "random_span")
# Original code: google-research/language, language/realm/local_launcher.sh
# (query_seq_len, max_masks).
MAX_QUERY_LENGTH = 96
MAX_MASKED = 10
# Devlin et al., 2019, section 3.1.
MASK_RATE = 0.15
# Joshi et al., 2020, section 3.1.
SPAN_LENGTH_P = 0.2
MAX_SPAN_LENGTH = 10

# P(length <= k) of the geometric distribution on 1..10: renormalised, not
# clipped, which is what gives the mean of 3.8 words in the paper.
_SPAN_LENGTH_CUMULATIVE = (
    1 - (1 - SPAN_LENGTH_P) ** np.arange(1, MAX_SPAN_LENGTH + 1)
) / (1 - (1 - SPAN_LENGTH_P) ** MAX_SPAN_LENGTH)


@dataclasses.dataclass(frozen=True)
class MaskedExample:
    """A masked query and what was masked.

    Args:
        block_id: int. The block that the query was taken from, or -1.
        token_ids: int32 array `(query_length,)`. [CLS], the sentence with
            [MASK] in it, [SEP].
        mask_positions: int32 array `(num_masked,)`. Places in `token_ids`,
            ascending.
        mask_ids: int32 array `(num_masked,)`. The wordpieces that were
            masked.
        sentence_ids: int32 array `(query_length - 2,)`. The query unmasked,
            without [CLS] and [SEP]: the sentence, or the window of it that
            the query is. A block that holds these is the query's own.
    """

    block_id: int
    token_ids: np.ndarray
    mask_positions: np.ndarray
    mask_ids: np.ndarray
    sentence_ids: np.ndarray


def draw_span_length(generator: np.random.Generator) -> int:
    """A span length in words, 1 to 10, geometric with p = 0.2.

    References:
        [Joshi et al., 2020](https://arxiv.org/abs/1907.10529), section 3.1.
    """
    row = np.searchsorted(
        _SPAN_LENGTH_CUMULATIVE, generator.random(), side="right"
    )
    return int(row) + 1


class Masker:
    """Masks passages in one of the three modes.

    A sentence longer than the query is cut to a window: of those that hold
    the whole salient span (in the other modes, of all), one uniformly. (The
    original drops an example whose span would be cut off.)

    Salient spans of more than `max_masked` wordpieces are not eligible: half
    a name is another task. (The original trains on the first ones only.)
    Numbers are not either: the paper's salient spans are names and dates.

    Args:
        wordpieces: list of str. The vocabulary, in the order of ids.
        mode: str. One of `MODES`. Defaults to `"salient"`.
        max_query_length: int. Wordpieces with [CLS] and [SEP]. Defaults to
            96.
        max_masked: int. Wordpieces. Defaults to 10.
        mask_rate: float. Share of the query's wordpieces, [CLS] and [SEP]
            left out, that modes other than `"salient"` mask, rounded; at
            least one. Defaults to 0.15.
        keep_rate: float. In mode `"uniform"`, share of what is chosen that
            stays visible and is predicted all the same. Defaults to 0.
        mask_numbers: bool. Whether spans that the tagger calls numbers are
            eligible, too. Defaults to `False`.

    Raises:
        InputError: if `max_masked` wordpieces do not fit into a query.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.4
        and 4.5; [Devlin et al., 2019](https://arxiv.org/abs/1810.04805),
        section 3.1; [Joshi et al., 2020](https://arxiv.org/abs/1907.10529).
    """

    def __init__(
        self,
        wordpieces: list[str],
        *,
        mode: str = "salient",
        max_query_length: int = MAX_QUERY_LENGTH,
        max_masked: int = MAX_MASKED,
        mask_rate: float = MASK_RATE,
        keep_rate: float = 0.0,
        mask_numbers: bool = False,
    ):
        if max_masked > max_query_length - 2:
            raise InputError(
                "`max_masked` must fit beside [CLS] and [SEP]. Received: "
                f"max_masked={max_masked}, max_query_length={max_query_length}"
            )
        self.mode = mode
        self.max_query_length = max_query_length
        self.max_masked = max_masked
        self._mask_rate = mask_rate
        self._keep_rate = keep_rate
        self._mask_numbers = mask_numbers
        self._cls_id = wordpieces.index("[CLS]")
        self._sep_id = wordpieces.index("[SEP]")
        self._mask_id = wordpieces.index("[MASK]")
        self._starts_word = np.array(
            [not piece.startswith("##") for piece in wordpieces]
        )

    def eligible(self, spans: np.ndarray) -> np.ndarray:
        """Which salient spans may be masked.

        Args:
            spans: int array `(num_spans, 3)`, rows of
                `TokenizedPassage.spans`.

        Returns:
            bool array `(num_spans,)`.
        """
        found = spans[:, 1] - spans[:, 0] <= self.max_masked
        return found if self._mask_numbers else found & (spans[:, 2] == 0)

    def mask(
        self, passage: TokenizedPassage, generator: np.random.Generator
    ) -> MaskedExample:
        """A masked query from a passage.

        Args:
            passage: `TokenizedPassage`, of which something can be masked: an
                eligible span (a wordpiece, in the other modes).
            generator: `numpy.random.Generator`. Decides every draw.
        """
        if self.mode == "salient":
            return self._mask_salient(passage, generator)
        sentences = _sentences(passage)
        ids = sentences[generator.integers(len(sentences))]
        ids = ids[self._window(len(ids), (len(ids), 0), generator)]
        # As BERT's create_pretraining_data.py.
        budget = min(self.max_masked, max(1, round(len(ids) * self._mask_rate)))
        if self.mode == "uniform":
            places = np.sort(generator.permutation(len(ids))[:budget])
        else:
            places = self._random_spans(ids, budget, generator)
        put = self._mask_id
        if self._keep_rate:
            is_kept = generator.random(len(places)) < self._keep_rate
            put = np.where(is_kept, ids[places], put)
        return self._example(passage, ids, places, put)

    def _mask_salient(self, passage, generator):
        spans = passage.spans.reshape(-1, 3)
        spans = spans[self.eligible(spans)]
        span = spans[generator.integers(len(spans))]
        starts = passage.sentence_starts
        row = np.searchsorted(starts, span[0], side="right") - 1
        ids = _sentences(passage)[row]
        start, limit = (int(place - starts[row]) for place in span[:2])
        window = self._window(len(ids), (start, limit), generator)
        places = np.arange(start, limit) - window.start
        return self._example(passage, ids[window], places, self._mask_id)

    def _window(self, length, span, generator):
        width = self.max_query_length - 2
        if length <= width:
            return slice(0, length)
        start, limit = span
        low = max(0, limit - width)
        high = min(start, length - width)
        first = int(generator.integers(low, high + 1))
        return slice(first, first + width)

    def _random_spans(self, ids, budget, generator):
        """Places of whole words, at most `budget` wordpieces.

        A span begins at a word drawn from those that still fit and ends
        before one that is masked or does not fit. Where every word is longer
        than the budget, the first wordpieces of one are masked.
        """
        begins = self._starts_word[ids]
        begins[0] = True
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(ids))
        masked = np.zeros(len(starts), bool)
        left = budget
        while True:
            fitting = np.flatnonzero(~masked & (lengths <= left))
            if not len(fitting):
                break
            wanted = draw_span_length(generator)
            first = fitting[generator.integers(len(fitting))]
            for word in range(first, min(first + wanted, len(starts))):
                if masked[word] or lengths[word] > left:
                    break
                masked[word] = True
                left -= lengths[word]
        if not masked.any():
            first = starts[generator.integers(len(starts))]
            return np.arange(first, first + budget)
        return np.flatnonzero(np.repeat(masked, lengths))

    def _example(self, passage, ids, places, put):
        token_ids = np.array([self._cls_id, *ids, self._sep_id], "int32")
        token_ids[places + 1] = put
        return MaskedExample(
            block_id=passage.block_id,
            token_ids=token_ids,
            mask_positions=(places + 1).astype("int32"),
            mask_ids=ids[places].astype("int32"),
            sentence_ids=ids.astype("int32"),
        )


def _sentences(passage):
    return np.split(passage.token_ids, passage.sentence_starts[1:])


class PretrainingExamples(ExampleBatches):
    """Masked queries of passages, in batches, one a passage and epoch.

    Each epoch visits every eligible passage once and masks it again; see
    `ExampleBatches`. Memory: 8 bytes a passage; the passages stay on the disk.

    A batch is a dict of int32 arrays whose shapes never change, so that a
    step is compiled once:

    - `token_ids`, `padding_mask` `(batch_size, max_query_length)`: the masked
      query, [CLS] and [SEP] included, padded with [PAD].
    - `mask_positions`, `mask_ids`, `mask_weights`
      `(batch_size, max_masked)`: places in `token_ids`, what was there, and
      1; all 0 where fewer are masked.
    - `sentence_ids` `(batch_size, max_query_length - 2)`: the query unmasked,
      without [CLS] and [SEP], padded with -1, which no block holds.
    - `block_id` `(batch_size,)`: the block that the query is from, or -1.

    Args:
        passages: `TokenizedPassages`.
        batch_size: int. As `ExampleBatches`.
        seed: int. See there. Defaults to `0`.
        share: tuple of int. See there. Defaults to `(0, 1)`.
        num_held_out: int. Passages, spread over the eligible ones, that are
            left out. Defaults to `0`.
        of_held_out: bool. Use only these; the last batch may be smaller.
            Defaults to `False`.
        **masking_options: as `Masker`: `mode`, `max_query_length`,
            `max_masked`, `mask_numbers`.

    Attributes:
        num_examples: int. Of each epoch.
        steps_per_epoch: int.
        counts: dict of int. As `tokenize_passages` counts, and
            `passages_left_out`, those without an eligible span (mode
            `"salient"`) or a wordpiece (the others).

    Raises:
        InputError: if the passages do not fill one batch.
    """

    def __init__(
        self,
        passages: TokenizedPassages,
        *,
        batch_size: int,
        seed: int = 0,
        share: tuple[int, int] = (0, 1),
        num_held_out: int = 0,
        of_held_out: bool = False,
        **masking_options,
    ):
        self.passages = passages
        self.masker = Masker(passages.wordpieces, **masking_options)
        # Width of what is masked in a batch.
        self._max_masked = self.masker.max_masked
        self._pad_id = passages.wordpieces.index("[PAD]")
        eligible, self.counts = self._eligible()
        num = min(num_held_out, len(eligible))
        held_out = eligible[np.arange(num) * len(eligible) // max(num, 1)]
        self._kept = (
            held_out if of_held_out else np.setdiff1d(eligible, held_out)
        )
        super().__init__(
            len(self._kept),
            batch_size=batch_size,
            seed=seed,
            share=share,
            drop_remainder=not of_held_out,
        )

    def _eligible(self):
        if self.masker.mode == "salient":
            found = self.passages.count_spans(self.masker.eligible)
        else:
            found = self.passages.count_sentences()
        kept = np.flatnonzero(found).astype("int32")
        left_out = len(found) - len(kept)
        return kept, {**self.passages.counts, "passages_left_out": left_out}

    def example(self, epoch: int, number: int) -> MaskedExample:
        """What an epoch masks in a passage.

        Args:
            epoch: int.
            number: int. Of an eligible passage in `passages`.
        """
        return self.masker.mask(
            self.passages[number], self._generator(epoch, number)
        )

    def _order(self, generator):
        return generator.permutation(self._kept)

    def _stack(self, examples):
        token_ids = [e.token_ids for e in examples]
        mask_ids = [e.mask_ids for e in examples]
        length = self.masker.max_query_length
        return {
            "token_ids": pad(token_ids, length, self._pad_id),
            "padding_mask": pad(list(map(np.ones_like, token_ids)), length),
            "mask_positions": pad(
                [e.mask_positions for e in examples], self._max_masked
            ),
            "mask_ids": pad(mask_ids, self._max_masked),
            "mask_weights": pad(
                list(map(np.ones_like, mask_ids)), self._max_masked
            ),
            "sentence_ids": pad(
                [e.sentence_ids for e in examples], length - 2, -1
            ),
            "block_id": np.array([e.block_id for e in examples], "int32"),
        }
