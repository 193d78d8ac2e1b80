"""Taggers find the salient spans of blocks.

A tagger has `tag(blocks)`, which gives, for each `schema.Block`, its spans as
`(start, limit, label)`: code points of the text, the limit exclusive, sorted,
not overlapping, each inside one sentence.
"""

import contextlib
from collections.abc import Callable

from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Tagger
from realm_tf.errors import InputError
from realm_tf.tagging import dates
from realm_tf.tagging.rules.salient_spans import find_spans

RULES = "rules"
LINKS = "links"
BERT = "bert"
SPACY = "spacy"
TAGGERS = (RULES, LINKS, BERT, SPACY)

SPACY_MODEL = "en_core_web_sm"
# Our choice: a link's text of one character is a footnote or a symbol.
_MIN_LINK_LENGTH = 2
# Sentences that a model computes at once (our choice).
_BATCH_SIZE = 32

Span = tuple[int, int, str]


def tag_sentences(
    blocks: list[schema.Block], find: Callable
) -> list[list[Span]]:
    """The spans of blocks, by what finds those of sentences.

    Args:
        blocks: list of `schema.Block`.
        find: function of a list of str, all sentences of the blocks, that
            gives for each its `(start, limit, label)`.

    Returns:
        list of lists of `(start, limit, label)`, one list a block.
    """
    places = [
        (number, start, limit)
        for number, block in enumerate(blocks)
        for start, limit in sentences(block)
    ]
    texts = [blocks[n].text[start:limit] for n, start, limit in places]
    spans = [[] for _ in blocks]
    for (number, offset, _), found in zip(places, find(texts), strict=True):
        spans[number] += [
            (offset + start, offset + limit, label)
            for start, limit, label in found
        ]
    return spans


class RulesTagger:
    """Dates, numbers and capitalised names, by rules."""

    def tag(self, blocks: list[schema.Block]) -> list[list[Span]]:
        """The spans of each block, labelled `date`, `number` or `name`."""
        return tag_sentences(blocks, lambda texts: map(find_spans, texts))


class LinksTagger:
    """The texts of wiki links, as entities, and the dates between them.

    Links are there only in blocks of wiki markup. Those shorter than two
    characters, or without a letter or a digit, are left out.

    Args:
        language: str. Of the dates; see `dates.date_finder`. Defaults to
            English.
    """

    def __init__(self, language: str = dates.ENGLISH):
        self._find_dates = dates.date_finder(language)

    def tag(self, blocks: list[schema.Block]) -> list[list[Span]]:
        """The spans of each block, labelled `link` or `date`."""
        of_blocks = tag_sentences(blocks, lambda texts: map(self._dates, texts))
        return [
            without_overlaps([*_links(block), *found])
            for block, found in zip(blocks, of_blocks, strict=True)
        ]

    def _dates(self, sentence):
        return [(*place, "date") for place in self._find_dates(sentence)]


def _links(block):
    for start, limit in zip(block.link_starts, block.link_limits, strict=True):
        name = block.text[start:limit]
        if len(name) >= _MIN_LINK_LENGTH and any(map(str.isalnum, name)):
            yield start, limit, "link"


class SpacyTagger:
    """The named entities of a spaCy pipeline, sentence by sentence.

    Args:
        model: str. A pipeline that is installed, or a directory of one.
            Defaults to `"en_core_web_sm"`.

    Raises:
        InputError: if spaCy or the pipeline is not installed.
    """

    def __init__(self, model: str = SPACY_MODEL):
        try:
            import spacy
        except ImportError as error:
            raise InputError(
                "--tagger spacy needs spaCy, which is not installed here: run "
                f"`pip install spacy` and `python -m spacy download {model}`."
            ) from error
        try:
            self._pipeline = spacy.load(model)
        except OSError as error:
            raise InputError(
                f"--tagger-model {model}: spaCy can load no such pipeline here: "
                f"run `python -m spacy download {model}`, or name a directory."
            ) from error
        # The name given, its version and spaCy's.
        self.version = (
            f"{model} {self._pipeline.meta['version']}, "
            f"spaCy {spacy.__version__}"
        )

    def tag(self, blocks: list[schema.Block]) -> list[list[Span]]:
        """The spans of each block, with the labels of the pipeline."""
        # Else each new word stays in the pipeline's vocabulary for ever.
        # spaCy has zones since 3.8.
        with getattr(self._pipeline, "memory_zone", contextlib.nullcontext)():
            return tag_sentences(blocks, self._find)

    def _find(self, texts):
        for document in self._pipeline.pipe(texts, batch_size=_BATCH_SIZE):
            yield [
                (entity.start_char, entity.end_char, entity.label_)
                for entity in document.ents
            ]


class BertTagger:
    """Names by a trained tagger, and dates by the forms of their language.

    A date that overlaps a name is left out.

    Args:
        directory: str. Written by `realm train-tagger`.
        precision: str. See `models.precision.computing_in`. Defaults to
            `"float32"`.
        language: str. Of the dates; see `dates.date_finder`. Defaults to
            English.

    Raises:
        InputError: if the directory is no complete tagger directory.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.4: "a
        BERT-based tagger trained on CoNLL-2003 data to identify named
        entities, and a regular expression to identify dates".
    """

    def __init__(
        self,
        directory: str,
        precision: str = "float32",
        language: str = dates.ENGLISH,
    ):
        from realm_tf.models.precision import computing_in
        from realm_tf.tagging import tagger_directory

        self._find_dates = dates.date_finder(language)
        with computing_in(precision):
            self._tagger = tagger_directory.load(directory)

    def tag(self, blocks: list[schema.Block]) -> list[list[Span]]:
        """The spans of each block, with the labels of the tagger and `DATE`.

        Sorts all sentences by length into batches: many blocks at once cost
        less than one by one.
        """
        return tag_sentences(blocks, self._find)

    def _find(self, sentences):
        names = self._tagger.find_names(sentences, batch_size=_BATCH_SIZE)
        for sentence, found in zip(sentences, names, strict=True):
            days = [(*place, "DATE") for place in self._find_dates(sentence)]
            yield without_overlaps([*found, *days])


def make_tagger(
    name: str,
    *,
    tagger_model: str | None = None,
    language: str = dates.ENGLISH,
    precision: str = "float32",
):
    """A tagger by name.

    Args:
        name: str. One of `TAGGERS`.
        tagger_model: str. For `bert`: the directory of its model. For `spacy`:
            the pipeline, by default `SPACY_MODEL`.
        language: str. ISO 639 code of the texts, whose dates `links` and `bert`
            find. Defaults to English.
        precision: str. In which `bert` computes. Defaults to `"float32"`.

    Returns:
        An object with `tag(blocks)`.

    Raises:
        InputError: if the tagger's model is missing.
    """
    if name == RULES:
        return RulesTagger()
    if name == LINKS:
        return LinksTagger(language)
    if name == SPACY:
        return SpacyTagger(tagger_model or SPACY_MODEL)
    return BertTagger(tagger_model, precision, language)


def identity(
    name: str,
    *,
    tagger_model: str | None = None,
    language: str = dates.ENGLISH,
) -> str:
    """An identifier that differs where the spans of two taggers may differ.

    Args:
        name: str. As for `make_tagger`.
        tagger_model: str. As for `make_tagger`.
        language: str. As for `make_tagger`.

    Returns:
        str, the fingerprint of the model of `bert`, the version of the
        pipeline of `spacy`, else the name; with the language, if `bert` or
        `links` looks for dates that are not English.

    Raises:
        InputError: if an argument belongs to another tagger, or the tagger's
            model is missing, or it knows nothing of the language.
    """
    if name == BERT and not tagger_model:
        raise InputError(
            "--tagger bert needs --tagger-model: the directory that `realm "
            "train-tagger` made."
        )
    if tagger_model and name not in (BERT, SPACY):
        raise InputError(
            "--tagger-model belongs to --tagger bert and spacy. Received: "
            f"--tagger {name}"
        )
    if name == SPACY:
        return SpacyTagger(tagger_model or SPACY_MODEL).version
    found = Tagger(tagger_model).fingerprint if name == BERT else name
    if dates.is_english(language):
        return found
    if name == RULES:
        raise InputError(
            "--tagger rules knows English names and numbers; the passages are "
            f"of language {language!r}. Choose links, bert or spacy."
        )
    dates.date_finder(language)
    return f"{found}, dates of {language}"


def sentences(block: schema.Block) -> list[tuple[int, int]]:
    """Start and limit of each sentence of a block."""
    return list(
        zip(block.sentence_starts, block.sentence_limits(), strict=True)
    )


def without_overlaps(spans: list[Span]) -> list[Span]:
    """The spans in order, each that overlaps an earlier one left out.

    Args:
        spans: list of `(start, limit, label)`. Of two that overlap, the
            first in this list stays.

    Returns:
        list of the same, sorted.
    """
    kept = []
    for start, limit, label in spans:
        if all(limit <= other[0] or start >= other[1] for other in kept):
            kept.append((start, limit, label))
    return sorted(kept)
