"""Does pre-training work: a model on masked sentences, before and after.

    python benchmarks/pretraining.py --output DIR [--wheel FILE]

Over the embedded corpus of the quick start: from MiniLM's weights, the reader's
masked-LM warm-up, then pre-training with an index that is refreshed. Steps that
DIR holds are not run again.

Both models are measured on masks that no step has seen, of salient spans and of
uniformly drawn wordpieces; results.json holds the numbers. `--measure MODEL ...`
trains nothing and measures existing models, such as those of
`published.py systems` over the same blocks; each has a file in DIR.
"""

import dataclasses
import itertools
import json
import os
from typing import Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

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
from realm_tf.operations.operation import Repeated
from realm_tf.text.tokenizer import Tokenizer

# Far beyond any training: masks that no step has seen.
_EPOCH = 1_000_000
_MODES = ("salient", "uniform")
# Of masked sentences, for a measurement.
_NUM_BATCHES = 60
# As the recipe reads them.
_MAX_BLOCK_LENGTH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is trained, or measured."""

    output: str
    """directory of all models and results"""
    wheel: str | None = None
    """as `realm init --from minilm --wheel`"""
    recipe: Literal[*configs.RECIPES] = "wiki-small"
    """of `realm pretrain`"""
    set: Repeated = ()
    """NAME=VALUE: change a number of that recipe"""
    measure: tuple[str, ...] = ()
    """models to measure, instead of training any"""


def main(args: Arguments):
    """Trains and measures, or only measures."""
    # Exact: no result depends on how fast the machine is.
    recipe = (
        configs.RECIPES[args.recipe].parse(args.set).replace(refresh="sync")
    )
    graph = realm.Graph()

    def add(operation, name, **fields):
        output = os.path.join(args.output, name)
        return graph.add(operation(output=output, **fields))

    start = add(
        realm.Init,
        "minilm-start",
        from_="minilm",
        wheel=args.wheel,
        reader_layers=3,
    )
    blocks = add(
        realm.Chunk,
        "blocks",
        input=quickstart.CORPUS,
        vocab=start.vocabulary,
        max_block_length=_MAX_BLOCK_LENGTH,
    )
    passages = add(realm.Annotate, "annotated", blocks=blocks, tagger="rules")
    models = {os.path.basename(path): Model(path) for path in args.measure}
    if not models:
        common = {"blocks": blocks, "corpus": passages}
        warm = add(
            realm.Pretrain,
            "minilm-warm",
            model=start,
            recipe=recipe.replace(num_steps=0),
            **common,
        )
        trained = add(
            realm.Pretrain,
            "minilm-refreshed-0",
            model=warm,
            recipe=recipe.replace(masked_lm_steps=0, seed=0),
            **common,
        )
        models = {"start": warm, "refreshed": trained}
    graph.run()
    tokenized = _tokenize(blocks, passages, args.output)
    found = {}
    for name, model in models.items():
        found[name] = {
            mode: evaluate(
                model,
                blocks.records,
                tokenized,
                recipe=recipe,
                num_batches=_NUM_BATCHES,
                mode=mode,
            )
            for mode in _MODES
        }
        path = os.path.join(args.output, f"{name}.json")
        write_text(path, json.dumps(found[name]))
    results = {"recipe": recipe.flat(), "models": found}
    if not args.measure:
        results["findable"] = findable(blocks.records, tokenized, recipe)
    text = json.dumps(results, indent=2)
    write_text(os.path.join(args.output, "results.json"), text)
    print(text)


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
    num_batches: int,
    mode: str = "salient",
) -> dict:
    """Measures a model on masked sentences, over an index of its own.

    The masks are new; the model may have been trained on the sentences.

    Args:
        model: `Model`.
        blocks: `BlockRecords`. What is retrieved.
        passages: `TokenizedPassages`. What is masked.
        recipe: `PretrainRecipe`. Lengths, candidates and batch size.
        num_batches: int.
        mode: str. What is masked. Defaults to `"salient"`.

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


def findable(blocks, passages, recipe: configs.PretrainRecipe) -> dict:
    """Counts the salient spans that another block holds, too."""
    articles = blocks.article_numbers()
    bodies = [
        f" {' '.join(map(str, blocks[number].token_ids))} "
        for number in range(len(blocks))
    ]
    examples = PretrainingExamples(
        passages,
        batch_size=recipe.batch_size,
        max_query_length=recipe.lengths.max_query_length,
        max_masked=recipe.masking.max_masked,
    )
    counts = {"spans": 0, "in_the_article": 0, "in_the_corpus": 0}
    for step in range(examples.steps_per_epoch):
        for example in examples.examples(0, step):
            masked = f" {' '.join(map(str, example.mask_ids))} "
            holders = [
                number
                for number, body in enumerate(bodies)
                if masked in body and number != example.block_id
            ]
            counts["spans"] += 1
            counts["in_the_corpus"] += bool(holders)
            counts["in_the_article"] += bool(
                (articles[holders] == articles[example.block_id]).any()
            )
    return counts


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
