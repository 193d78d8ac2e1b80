"""A model of one directory's towers and of another's reader."""

import dataclasses

from realm_tf.artifacts import matching
from realm_tf.artifacts.model_card import UNKNOWN_LICENSE
from realm_tf.artifacts.model_card import Card
from realm_tf.artifacts.objects import Model
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombineModels(Operation):
    """Makes a model directory with the parts of two others.

    An index of the first one fits the new one, whose block tower is the same.
    """

    makes = Model

    towers: Model
    """model that gives query and block tower, with their score scale"""
    reader: Model
    """model that gives the reader and, if it has one, the masked-LM head over
    its encoder"""
    output: str
    """the directory to make"""

    def run(self) -> Model:
        """Combines them.

        Raises:
            InputError: if either is not complete, the vocabularies differ, or
                `output` exists.
        """
        from realm_tf.models import model_directory
        from realm_tf.models.open_qa import OpenQa

        matching.check_one_vocabulary(self.towers, self.reader)
        with self.write() as stage:
            first, second = map(
                model_directory.load, (self.towers, self.reader)
            )
            combined = OpenQa(
                first.model.query_embedder,
                first.model.block_embedder,
                second.model.reader,
                knowledge_augmented_encoder=(
                    second.model.knowledge_augmented_encoder
                ),
                score_scale=first.model.score_scale,
            )
            card = _card(first.card, second.card)
            model_directory.write_files(
                dataclasses.replace(first, model=combined, card=card), stage
            )
        return self.result


def _card(towers, reader):
    """What both say; nothing is said of a licence they do not share."""
    if towers == reader:
        return towers
    same_license = towers.license == reader.license
    return Card(
        origin=f"Towers: {towers.origin} Reader: {reader.origin}",
        license=towers.license if same_license else UNKNOWN_LICENSE,
        sources=tuple(dict.fromkeys((*towers.sources, *reader.sources))),
        notes=tuple(dict.fromkeys((*towers.notes, *reader.notes))),
        languages=tuple(
            code for code in towers.languages if code in reader.languages
        ),
    )
