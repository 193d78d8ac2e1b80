"""`realm probe`."""

import dataclasses
from typing import Annotated

import tyro

from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.operations.inspect import check_block
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.operations.operation import RepeatedNumbers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Operation):
    """Shows what a pre-trained model puts in the place of [MASK], by block.

      realm probe "An equilateral triangle is easily constructed because 3 is
          a [MASK] prime." --answer Fermat --model DIR --blocks DIR --index DIR
      realm probe ... --block-id 17     the same, with a block that you choose

    Table 3 of the paper for any sentence: p(y|x) of the answer y without
    retrieval, from each retrieved block alone, and with all of them. One
    [MASK] stands for one whole answer, however many wordpieces that has; for
    several [MASK], give several --answer in their order. Without --answer, the
    best predictions for each [MASK] are shown, which then is a single
    wordpiece; write `[MASK] [MASK]` for two.

    The null block is always a candidate. Blocks that hold the sentence itself,
    or say the same as a better one, are left out, as in pre-training;
    --block-id reads any block.
    """

    command = "probe"

    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")]
    """a sentence with [MASK] in it, each a word of its own: what stands beside
    it is tokenized without it"""
    answer: Repeated = ()
    """what [MASK] stands for; once for each [MASK], in their order (if not given:
    show the best predictions)"""
    model: Model
    """model directory with a masked-LM head: of `realm pretrain`"""
    blocks: Blocks
    """directory of `realm chunk`, or of `realm pack`"""
    index: Index
    """index directory of this model and these blocks"""
    # Guu et al., 2020, section 4.3: 8 candidates, the null block among them.
    num_retrieved: int = 7
    """blocks besides the null block"""
    block_id: RepeatedNumbers = ()
    """read these blocks, too"""
    json: bool = False
    """print everything as JSON"""

    def run(self):
        """Retrieves for the masked sentence, and reads it with each block.

            log p(y | z, x) = sum_m log p(y_m | z, x)
            p(y | x) = sum_z p(z | x) p(y | z, x)

        over the null block, the best `num_retrieved` blocks of the index that
        pre-training would allow, and those of `block_id`. This is the paper's
        span form; `RealmModel`'s loss with `marginalization="span"` is -log
        p(y | x) for each masked wordpiece. p(z | x) is the softmax of the
        towers as they are. Blocks are cut to the lengths that the model was
        pre-trained with.

        Returns:
            `evaluation.probing.probed.Probed`.

        Raises:
            InputError: if the model has no masked-LM head, the directories do
                not match, or an argument does not fit the others.

        References:
            [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.1
            and 3.3, and table 3.
        """
        from realm_tf.answering.closed_book import masked_lm_encoder
        from realm_tf.evaluation.probing import masked_query
        from realm_tf.evaluation.probing import reading

        self._check()
        loaded = self.model.load()
        masked_lm_encoder(loaded, model=str(self.model))
        # The shell may hand over bytes that are no text.
        text, *answers = (
            each.encode("utf-8", "replace").decode("utf-8")
            for each in (self.text, *self.answer)
        )
        return reading.probe(
            loaded,
            self.blocks,
            self.index.load(),
            masked_query.make_query(text, answers, loaded),
            num_retrieved=self.num_retrieved,
            block_ids=self.block_id,
        )

    def _check(self):
        self.check_least(1, "num_retrieved")
        matching.check_vocabulary(self.blocks, self.model)
        matching.check_index(self.index, blocks=self.blocks, model=self.model)
        for number in self.block_id:
            check_block(self.blocks, number, flag="--block-id")

    def report(self, result) -> str:
        from realm_tf.evaluation.probing import table

        return result.to_json() if self.json else table.render(result)
