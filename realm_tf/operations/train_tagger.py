"""`realm train-tagger`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Tagger
from realm_tf.artifacts.paths import Path
from realm_tf.configs import tagger as configs
from realm_tf.operations.training import RecipeOperation


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainTagger(RecipeOperation):
    """Trains the BERT tagger of salient spans on sentences with marked names.

      realm train-tagger --train eng.train.gz --dev eng.testa.gz \\
          --test eng.testb.gz --model DIR --output DIR [--set num_epochs=2]

    Files are in CoNLL's format, with a word and its tag on each line (IOB1,
    IOB2 or BIOES). The epoch with the best F1 on --dev is kept. metrics.json
    holds precision, recall and F1 of each type.
    """

    command = "train-tagger"
    makes = Tagger
    recipes = configs.RECIPES

    recipe: Literal[*configs.RECIPES] = "laptop"
    """the recipe by name"""
    train: tuple[str, ...]
    """CoNLL files, learned together"""
    dev: str
    """CoNLL file that decides the best epoch"""
    test: str | None = None
    """CoNLL file, measured once, at the end"""
    model: Model
    """model directory whose block tower is the initial encoder"""
    output: str
    """directory to make"""

    def parents(self) -> dict:
        files = {"train": self.train, "dev": [self.dev]}
        if self.test:
            files["test"] = [self.test]
        return super().parents() | {
            name: fingerprints.fingerprint(
                *(Path(path).read_bytes() for path in paths)
            )
            for name, paths in files.items()
        }

    def run(self, *, verbose: int | str = "auto") -> Tagger:
        """Trains a tagger and writes its directory.

        Args:
            verbose: int or str. As `keras.Model.fit`; `"auto"` is a bar on a
                terminal and a line now and then elsewhere. Defaults to
                `"auto"`.

        Returns:
            `Tagger`, with what `tagging.conll.entity_scores` says of
            `"dev"` and, where given, `"test"` as its `metrics`.

        Raises:
            InputError: if a file is not in CoNLL's format, or --dev or --test
                holds a type of entity that no --train file has.
        """
        import keras

        from realm_tf.models import model_directory
        from realm_tf.tagging import train

        recipe = self.settings
        files = {"dev": self.dev, **({"test": self.test} if self.test else {})}
        sentences, held_out = train.read_files(self.train, files)
        # Before the model, whose dropout draws its seeds when it is made.
        keras.utils.set_random_seed(recipe.seed)
        loaded = model_directory.load(self.model)
        with self.write() as stage:
            train.train_tagger(
                stage, loaded, sentences, held_out, recipe, verbose=verbose
            )
        return self.result

    def report(self, result: Tagger) -> str:
        shown = ", ".join(
            f"{name} F1 {scores['all']['f1']:.4f}"
            for name, scores in result.metrics.items()
        )
        return f"{self.output}: {shown}"
