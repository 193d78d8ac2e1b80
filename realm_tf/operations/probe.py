"""`realm probe`."""

import dataclasses
from typing import Annotated

import tyro

from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.evaluation import text_table
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.text.printable import one_line

# Code points of a block in the table (our choice).
_NUM_SHOWN = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Operation):
    """Shows how each retrieved block changes the prediction of [MASK].

      realm probe "An equilateral triangle is easily constructed because 3 is
          a [MASK] prime." --answer Fermat --model DIR --blocks DIR --index DIR

    Prints table 3 of the paper for any sentence: the probability of the answer
    without retrieval (null block), with each retrieved block, and with all of
    them. Each [MASK] stands for one whole --answer, in their order. Without an
    answer, each [MASK] is one wordpiece.

    As in pre-training, blocks that contain the sentence itself or repeat a
    better block are left out.
    """

    command = "probe"

    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")]
    """a sentence with [MASK] in it"""
    answer: Repeated = ()
    """the masked words; once for each [MASK], in their order (if not given: only
    predictions)"""
    model: Model
    """model directory with a masked-LM head: of `realm pretrain`"""
    blocks: Blocks
    """directory of `realm chunk`"""
    index: Index
    """index directory of this model and these blocks"""
    # Guu et al., 2020, section 4.3: 8 candidates, the null block among them.
    num_retrieved: int = 7
    """blocks besides the null block"""

    def run(self):
        """Retrieves, and reads the sentence with each candidate.

            p(z | x) = softmax over the candidates of f(x, z)
            log p(y | z, x) = sum_m log p(y_m | z, x)
            p(y | x) = sum_z p(z | x) p(y | z, x)

        Returns:
            list of `evaluation.probing.Reading`.

        Raises:
            InputError: if the model has no masked-LM head, the directories do
                not match, or the text and the answers do not fit.

        References:
            [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.1
            and 3.3, and table 3.
        """
        from realm_tf.answering.closed_book import masked_lm_encoder
        from realm_tf.evaluation import probing
        from realm_tf.models import model_directory
        from realm_tf.retrieval import index

        self.check_least(1, "num_retrieved")
        matching.check_vocabulary(self.blocks, self.model)
        matching.check_index(self.index, blocks=self.blocks, model=self.model)
        loaded = model_directory.load(self.model)
        masked_lm_encoder(loaded, model=str(self.model))
        searched = index.load(self.index)
        given = (searched, self.text, self.answer, self.num_retrieved)
        return probing.probe(loaded, self.blocks, *given)

    def report(self, result) -> str:
        header = ["z", "p(z|x)", "p(y|z,x)", "r(z)", "predicted", "block"]
        rows = [self._row(reading) for reading in result]
        rows[0][0] = "all"
        return text_table.render(header, rows).rstrip()

    def _row(self, reading):
        """The cells of a reading; numbers of an answer only if there is one."""
        block = reading.block
        cells = [
            str(block.block_id) if block else "null",
            f"{reading.prior:.4f}",
            f"{reading.likelihood:.4g}" if self.answer else "",
            f"{reading.gradient:+.4f}" if self.answer else "",
            " ".join(f"{piece} {p:.3f}" for piece, p in reading.predictions),
            f"{block.title}: {block.text}"[:_NUM_SHOWN] if block else "",
        ]
        return [one_line(cell) for cell in cells]
