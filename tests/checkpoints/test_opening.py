import json

import pytest
import tokenizers

from realm_tf.checkpoints.tokenizer_files import find_tokenizer
from realm_tf.errors import InputError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe"]


def _write(directory, settings, *, in_tokenizer):
    """A vocabulary with its settings; tokenizer.json holds both."""
    if in_tokenizer:
        vocabulary = {word: number for number, word in enumerate(WORDS)}
        model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(**settings)
        tokenizer.save(str(directory / "tokenizer.json"))
        return
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    settings["do_lower_case"] = settings.pop("lowercase")
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(settings))


@pytest.mark.parametrize("in_tokenizer", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("strip_accents", [None, False, True])
def test_accents(tmp_path, in_tokenizer, lowercase, strip_accents):
    settings = {"lowercase": lowercase, "strip_accents": strip_accents}
    _write(tmp_path, settings, in_tokenizer=in_tokenizer)
    if strip_accents in (None, lowercase):
        assert find_tokenizer([str(tmp_path)]).lowercase == lowercase
    else:
        with pytest.raises(InputError, match="both or neither"):
            find_tokenizer([str(tmp_path)])
