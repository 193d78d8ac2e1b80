"""Whether pre-training works: a model on masked sentences, before and after.

    python benchmarks/pretraining.py --output DIR [--wheel FILE]

Over the embedded corpus of the quick start: MiniLM's weights, the masked-LM
warm-up of the reader, then pre-training with a refreshed index. Both models are
measured on new masks, of salient spans and of uniformly drawn wordpieces.
OUTPUT/NAME.json has the numbers of model NAME. `--measure MODEL ...` trains
nothing and measures existing models, such as those of `systems.py` over the same
blocks.
"""

import itertools
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import runs
import tyro

import realm_tf as realm
from realm_tf import quickstart
from realm_tf.artifacts.array_files import VOCABULARY
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import pretrain as configs
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.models import model_directory
from realm_tf.text.tokenizer import Tokenizer

# Far beyond any training: no step has seen these masks.
_EPOCH = 1_000_000
# Exact: no result depends on how fast the machine is.
_RECIPE = configs.RECIPES["wiki-small"].replace(
    refresh="sync", masked_lm_learning_rate=4e-4
)


def main(
    *,
    output: str,
    wheel: str | None = None,
    num_retrieved: int = 7,
    measure: tuple[str, ...] = (),
):
    """Trains and measures, or only measures.

    Args:
        output: directory of all models and results.
        wheel: as `realm init --from minilm --wheel`.
        num_retrieved: blocks of a sentence.
        measure: models to measure, instead of training any.
    """
    recipe = _RECIPE.replace(num_retrieved=num_retrieved)
    steps = runs.Runs(output)
    start = steps.add(
        realm.Init,
        "minilm-start",
        from_="minilm",
        wheel=wheel,
        reader_layers=3,
    )
    blocks = steps.add(
        realm.Chunk,
        "blocks",
        input=quickstart.CORPUS,
        vocab=start.vocabulary,
        max_block_length=recipe.lengths.max_block_length,
    )
    passages = steps.add(
        realm.Annotate, "annotated", blocks=blocks, tagger="rules"
    )
    models = {os.path.basename(path): Model(path) for path in measure}
    if not models:
        common = {"blocks": blocks, "corpus": passages}
        warm = steps.add(
            realm.Pretrain,
            "minilm-warm",
            model=start,
            recipe=recipe.replace(num_steps=0),
            **common,
        )
        trained = steps.add(
            realm.Pretrain,
            "minilm-refreshed-0",
            model=warm,
            recipe=recipe.replace(masked_lm_steps=0, seed=0),
            **common,
        )
        models = {"start": warm, "refreshed": trained}
    steps.graph.run()
    tokenized = _tokenize(blocks, passages, output)
    for name, model in models.items():
        found = {
            mode: evaluate(
                model, blocks.records, tokenized, recipe=recipe, mode=mode
            )
            for mode in ("salient", "uniform")
        }
        print(name, json.dumps(found, indent=2))
        write_text(os.path.join(output, f"{name}.json"), json.dumps(found))


def _tokenize(blocks, passages, output):
    path = os.path.join(output, "passages.arrow")
    if not os.path.exists(path):
        vocabulary = os.path.join(blocks.path, VOCABULARY)
        TokenizedPassages.write(path, passages, Tokenizer.from_file(vocabulary))
    return TokenizedPassages(path)


def evaluate(
    model: Model,
    blocks,
    passages,
    *,
    recipe: configs.PretrainRecipe,
    mode: str = "salient",
    num_batches: int = 60,
) -> dict:
    """Measures a model on masked sentences, over an index of its own.

    The masks are new; the model may have been trained on the sentences.

    Args:
        model: `Model`.
        blocks: `BlockRecords`. The knowledge corpus.
        passages: `TokenizedPassages`. The sentences.
        recipe: `PretrainRecipe`. Lengths, candidates and batch size.
        mode: str. As of `PretrainingExamples`. Defaults to `"salient"`.
        num_batches: int. Defaults to `60`.

    Returns:
        dict of float: `loss` and the metrics of `RealmModel`.
    """
    from realm_tf.retrieval.block_embedder import BlockEmbedder
    from realm_tf.training import index_builder
    from realm_tf.training import trainers

    recipe = recipe.replace(num_steps=1)
    loaded = model_directory.load(model)
    trainers.prepare(loaded.model, recipe)
    embedder = BlockEmbedder(loaded, max_length=recipe.lengths.max_block_length)
    trainer = trainers.make_realm_trainer(
        loaded,
        blocks,
        recipe,
        embeddings=index_builder.embed_blocks(embedder, blocks),
    )
    examples = PretrainingExamples(
        passages,
        batch_size=recipe.batch_size,
        mode=mode,
        max_query_length=recipe.lengths.max_query_length,
        max_masked=recipe.masking.max_masked,
    )
    batches = itertools.islice(
        examples.batches(_EPOCH * examples.steps_per_epoch), num_batches
    )
    return trainer.evaluate(
        ((batch,) for batch in batches),
        steps=num_batches,
        return_dict=True,
        verbose=0,
    )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
