import pretraining
import pytest

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.configs.pretrain import RECIPES
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.models import model_directory
from realm_tf.models.knowledge_augmented_encoder import MaskedLmModel
from realm_tf.training import trainers

RECIPE = RECIPES["tiny"].replace(batch_size=4)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, model_dir):
    """A model whose masked-LM head is kept."""
    loaded = model_directory.load(model_dir)
    trainers.prepare(loaded.model, RECIPE)
    path = str(tmp_path_factory.mktemp("model") / "model")
    model_directory.save(loaded, path)
    return path, loaded


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, blocks_dir, annotated_dir, loaded):
    path = str(tmp_path_factory.mktemp("packed") / "passages.arrow")
    TokenizedPassages.write(path, Passages(annotated_dir), loaded[1].tokenizer)
    return Blocks(blocks_dir).records, TokenizedPassages(path)


@pytest.mark.slow
def test_what_the_blocks_add_to_the_encoder_alone(loaded, corpus):
    """-log p(y|x) + log p(y|x) - log p(y|null,x) is the encoder's own loss."""
    found = pretraining.evaluate(
        Model(loaded[0]), *corpus, recipe=RECIPE, num_batches=1
    )
    examples = PretrainingExamples(
        corpus[1],
        batch_size=4,
        max_query_length=RECIPE.lengths.max_query_length,
        max_masked=RECIPE.masking.max_masked,
    )
    alone = MaskedLmModel(
        loaded[1].model.knowledge_augmented_encoder,
        sep_id=loaded[1].tokenizer.sep_id,
    )
    alone.compile()
    expected = alone.evaluate(
        examples.batch(pretraining._EPOCH, 0),
        batch_size=4,
        verbose=0,
        return_dict=True,
    )
    assert found["loss"] + found["retrieval_utility"] == pytest.approx(
        expected["loss"], abs=1e-4
    )
    assert 0 <= found["null_probability"] <= 1
