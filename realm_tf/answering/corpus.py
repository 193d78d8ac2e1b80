"""A model together with the blocks and the index that it answers from."""

import dataclasses
import functools

import numpy as np

from realm_tf.artifacts import matching
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import MAX_QUERY_LENGTH
from realm_tf.retrieval import index as retrieval_index
from realm_tf.retrieval import wordpiece_scores

NUM_READER_BLOCKS = 5


def load_model(model: Model, **arguments):
    """`LoadedModel` of what answers: without its masked-LM head."""
    from realm_tf.models import model_directory

    loaded = model_directory.load(model, **arguments)
    loaded.model = loaded.model.without_masked_lm_head()
    return loaded


@dataclasses.dataclass
class Corpus:
    """Model, blocks and index, checked to match.

    Args:
        loaded: `LoadedModel`.
        records: `BlockRecords`.
        index: `retrieval.index.Index`.
    """

    loaded: object
    records: BlockRecords
    index: object

    @classmethod
    def load(
        cls,
        model: Model | str,
        blocks: Blocks | str,
        index: Index | str,
        *,
        quantize: str = "none",
        **arguments,
    ):
        """Opens three directories, given as objects or paths.

        Args:
            model: `Model`.
            blocks: `Blocks`.
            index: `Index`.
            quantize: str. See `Index.from_files`. Defaults to `"none"`.
            **arguments: of `model_directory.load`.

        Raises:
            InputError: if one is missing or they do not match.
        """
        model, blocks = Model.of(model), Blocks.of(blocks)
        index = Index.of(index)
        matching.check_vocabulary(blocks, model)
        matching.check_index(index, blocks=blocks, model=model)
        corpus = cls(
            load_model(model, **arguments),
            blocks.records,
            retrieval_index.load(index, quantize=quantize),
        )
        corpus.check()
        return corpus

    def read_titles(self) -> None:
        """Makes the reader read titles, see `Reader`.

        Raises:
            InputError: if question, title and block are too long for it.
        """
        self.loaded.model.reader.reads_titles = True
        self.check()
        # Made without titles, if it was made.
        self.__dict__.pop("block_table", None)

    def check(self) -> None:
        """Refuses blocks that are too long for the reader.

        Raises:
            InputError: if one is.
        """
        reader = self.loaded.model.reader
        title = MAX_TITLE_LENGTH + 1 if reader.reads_titles else 0
        longest = MAX_QUERY_LENGTH + title + self.records.longest + 1
        matching.check_length(
            min(longest, reader.max_joint_length or longest),
            reader.encoder.max_sequence_length,
            what="Question, title and block" if title else "Question and block",
            mend="run `realm chunk` with a smaller --max-block-length",
        )

    @functools.cached_property
    def block_table(self):
        """`BlockTable` that models over the corpus share: bodies, and the titles
        if the reader reads them."""
        is_read = self.loaded.model.reader.reads_titles
        return block_table(self.records, self._title_ids if is_read else None)

    @functools.cached_property
    def _title_ids(self):
        return title_ids(self.records, self.loaded.tokenizer)

    @functools.cached_property
    def lexical(self):
        """`WordpieceBm25` of titles and bodies, for hybrid search."""
        return lexical(
            postings(self.records, self._title_ids, self.loaded.tokenizer)
        )

    def retrieve_and_read(
        self, *, model=None, lexical_weight=None, **arguments
    ):
        """`RetrieveAndRead` over these blocks.

        Args:
            model: `OpenQa`. Defaults to the loaded one.
            lexical_weight: float. Of BM25 beside the index. Defaults to `None`:
                the index alone searches.
            **arguments: of `RetrieveAndRead`.
        """
        return retrieve_and_read(
            self.loaded,
            self.index,
            self.block_table,
            None if lexical_weight is None else self.lexical,
            model=model,
            lexical_weight=lexical_weight,
            **arguments,
        )


def retrieve_and_read(
    loaded,
    index,
    block_table,
    lexical,
    *,
    lexical_weight,
    model=None,
    **options,
):
    """`RetrieveAndRead` of a model and what it looks up.

    Args:
        loaded: `LoadedModel`.
        index: `retrieval.index.Index`.
        block_table: `BlockTable`.
        lexical: `WordpieceBm25`, or `None`.
        lexical_weight: float, of `lexical`.
        model: `OpenQa`. Defaults to the loaded one.
        **options: of `RetrieveAndRead`.
    """
    from realm_tf.models.retrieve_and_read import RetrieveAndRead

    if lexical is not None:
        from realm_tf.retrieval.hybrid import Hybrid

        options["hybrid"] = Hybrid(index, lexical, lexical_weight)
    tokenizer = loaded.tokenizer
    return RetrieveAndRead(
        model or loaded.model,
        index,
        block_table,
        is_continuation=[
            piece.startswith("##") for piece in tokenizer.vocabulary
        ],
        sep_id=tokenizer.sep_id,
        **options,
    )


# Wordpieces of a title that a reader reads (our choice).
MAX_TITLE_LENGTH = 24


def title_ids(records, tokenizer) -> list[list[int]]:
    """Wordpieces of each block's title; many blocks have the same.

    Args:
        records: `BlockRecords`.
        tokenizer: `Tokenizer`.
    """
    titles = dict.fromkeys(records.titles)
    pieces = tokenizer.tokenize_batch(list(titles))
    ids = dict(zip(titles, (each.ids for each in pieces), strict=True))
    return [ids[title] for title in records.titles]


def block_table(records, title_ids=None):
    """`BlockTable` of bodies, and of titles where they are read.

    Args: as of `block_arrays`.
    """
    from realm_tf.models.block_table import BlockTable

    return BlockTable(**block_arrays(records, title_ids))


def block_arrays(records, title_ids=None) -> dict[str, np.ndarray]:
    """Arguments of `BlockTable`.

    Args:
        records: `BlockRecords`.
        title_ids: list of lists of int. Wordpieces of the titles. Defaults to
            `None`: they are not read.
    """
    found = {"token_ids": records.token_ids(), "lengths": records.lengths}
    if title_ids is not None:
        rows = [ids[:MAX_TITLE_LENGTH] for ids in title_ids]
        lengths = np.fromiter(map(len, rows), "int32", len(rows))
        is_piece = np.arange(MAX_TITLE_LENGTH) < lengths[:, None]
        padded = np.zeros(is_piece.shape, "int32")
        padded[is_piece] = np.concatenate(rows)
        found |= {"title_ids": padded, "title_lengths": lengths}
    return found


def postings(records, title_ids, tokenizer):
    """BM25 scores of titles and bodies; see `retrieval.wordpiece_scores`.

    Args:
        records: `BlockRecords`. Empty blocks at the end count for nothing.
        title_ids: list of lists of int. Wordpieces of the titles.
        tokenizer: `Tokenizer`.
    """
    num_blocks = records.num_blocks
    found = wordpiece_scores.postings(
        title_ids[:num_blocks],
        records.token_ids()[:num_blocks],
        records.lengths[:num_blocks],
        tokenizer.vocabulary_size,
        unk_id=tokenizer.unk_id,
    )
    found.resize(len(records), tokenizer.vocabulary_size)
    return found


def lexical(postings):
    """`WordpieceBm25` of what `postings` gave."""
    from realm_tf.retrieval.hybrid import WordpieceBm25

    return WordpieceBm25(postings, name="lexical")
