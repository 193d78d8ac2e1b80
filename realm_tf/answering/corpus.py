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

# Wordpieces of a title that a reader reads (our choice).
MAX_TITLE_LENGTH = 24


@dataclasses.dataclass
class Corpus:
    """What answering questions needs, checked to match.

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
        matching.check_has_texts(blocks)
        matching.check_vocabulary(blocks, model)
        matching.check_index(index, blocks=blocks, model=model)
        loaded = model.load(**arguments)
        loaded.model = loaded.model.without_masked_lm_head()
        corpus = cls(loaded, blocks.records, index.load(quantize=quantize))
        corpus._check_length()
        return corpus

    def read_titles(self) -> None:
        """Makes the reader read titles, see `Reader`.

        Raises:
            InputError: if question, title and block are too long for it.
        """
        self.loaded.model.reader.reads_titles = True
        self._check_length()
        # Made without titles, if it was made.
        self.__dict__.pop("block_table", None)

    def _check_length(self):
        reader = self.loaded.model.reader
        title = MAX_TITLE_LENGTH + 1 if reader.reads_titles else 0
        matching.check_length(
            MAX_QUERY_LENGTH + title + self.records.longest + 1,
            reader.encoder.max_sequence_length,
            what="Question, title and block" if title else "Question and block",
            mend="run `realm chunk` with a smaller --max-block-length",
        )

    @functools.cached_property
    def block_table(self):
        """`BlockTable` that models over the corpus share: bodies, and the titles
        if the reader reads them."""
        from realm_tf.models.block_table import BlockTable

        titles = {}
        if self.loaded.model.reader.reads_titles:
            rows = [ids[:MAX_TITLE_LENGTH] for ids in self._title_ids]
            lengths = np.fromiter(map(len, rows), "int32", len(rows))
            is_piece = np.arange(MAX_TITLE_LENGTH) < lengths[:, None]
            padded = np.zeros(is_piece.shape, "int32")
            padded[is_piece] = np.concatenate(rows)
            titles = {"title_ids": padded, "title_lengths": lengths}
        return BlockTable(
            self.records.token_ids(), self.records.lengths, **titles
        )

    @functools.cached_property
    def _title_ids(self):
        """Wordpieces of each block's title; many blocks have the same."""
        titles = dict.fromkeys(self.records.titles)
        pieces = self.loaded.tokenizer.tokenize_batch(list(titles))
        ids = dict(zip(titles, (each.ids for each in pieces), strict=True))
        return [ids[title] for title in self.records.titles]

    @functools.cached_property
    def lexical(self):
        """`WordpieceBm25` of titles and bodies, for hybrid search."""
        from realm_tf.retrieval import wordpiece_bm25

        tokenizer = self.loaded.tokenizer
        return wordpiece_bm25.WordpieceBm25(
            wordpiece_bm25.postings(
                self._title_ids,
                self.records.token_ids(),
                self.records.lengths,
                tokenizer.vocabulary_size,
            ),
            name="lexical",
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
        from realm_tf.models import retrieve_and_read

        if lexical_weight is not None:
            from realm_tf.retrieval.hybrid import Hybrid

            arguments["hybrid"] = Hybrid(
                self.index, self.lexical, lexical_weight
            )
        tokenizer = self.loaded.tokenizer
        return retrieve_and_read.RetrieveAndRead(
            model or self.loaded.model,
            self.index,
            self.block_table,
            is_continuation=[
                piece.startswith("##") for piece in tokenizer.vocabulary
            ],
            sep_id=tokenizer.sep_id,
            **arguments,
        )
