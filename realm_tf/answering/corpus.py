"""A model together with the blocks and the index that belong to it."""

import dataclasses

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.question_files import MAX_QUERY_LENGTH
from realm_tf.errors import InputError
from realm_tf.retrieval.index import Index


@dataclasses.dataclass
class Corpus:
    """What answering questions needs, checked to belong together.

    Args:
        loaded: `LoadedModel`.
        records: `BlockRecords`.
        index: `Index`, or `None` where another retriever is used.
    """

    loaded: object
    records: BlockRecords
    index: Index | None

    @classmethod
    def load(
        cls,
        model: str,
        blocks: str,
        index: str,
        *,
        for_export: bool = False,
        quantize: str = "none",
    ):
        """Opens three directories.

        Args:
            model: str. Model directory.
            blocks: str. Blocks directory.
            index: str. Index directory.
            for_export: bool. See `index_files.load`. Defaults to `False`.
            quantize: str. See `index_files.load`. Defaults to `"none"`.

        Raises:
            InputError: if one is missing or they do not belong together.
        """
        from realm_tf.artifacts import model_directory

        model_metadata = artifact.read(model, kind=schema.MODEL)
        block_metadata = artifact.read(blocks, kind=schema.BLOCKS)
        if model_metadata["tokenizer"] != block_metadata["tokenizer"]:
            raise InputError(
                f"{blocks} was cut with another vocabulary than that of "
                f"{model}: run `realm chunk` with the model's vocab.txt."
            )
        index_files.check_parents(
            index,
            block_tower=model_metadata["block_tower"],
            blocks=block_metadata["fingerprint"],
        )
        loaded = model_directory.load(model)
        loaded.model = loaded.model.without_masked_lm_head()
        records = BlockRecords(blocks)
        longest = MAX_QUERY_LENGTH + records.token_ids.shape[1] + 1
        limit = loaded.model.reader.encoder.max_sequence_length
        if longest > limit:
            raise InputError(
                f"Question and block of {blocks} can be {longest} wordpieces "
                f"long together, the reader of {model} takes {limit}: run "
                "`realm chunk` with a smaller --max-block-length."
            )
        return cls(
            loaded,
            records,
            index_files.load(index, for_export=for_export, quantize=quantize),
        )

    def retrieve_and_read(self, *, model=None, **arguments):
        """`RetrieveAndRead` over these blocks.

        Args:
            model: `OpenQa`. Defaults to the loaded one.
            **arguments: of `RetrieveAndRead`.
        """
        from realm_tf.models import retrieve_and_read
        from realm_tf.models.block_table import BlockTable

        tokenizer = self.loaded.tokenizer
        return retrieve_and_read.RetrieveAndRead(
            model or self.loaded.model,
            self.index,
            BlockTable(self.records.token_ids, self.records.lengths),
            is_continuation=[
                piece.startswith("##") for piece in tokenizer.vocabulary
            ],
            sep_id=tokenizer.sep_id,
            **arguments,
        )
