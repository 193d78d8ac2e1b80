"""REALM on Keras 3: retrieval-augmented language models, end to end.

Everything public is here, imported when it is used:

- operations, which do what the commands of `realm` do: `Chunk(...).run()`;
- objects, which the operations make and take: `Blocks("blocks")`;
- `load` and `Answerer`, for a model that answers in Python;
- Keras layers and models, for models of your own.
"""

import importlib
import os

from realm_tf.errors import InputError
from realm_tf.version import __version__

# TensorFlow does so by itself on processors with AVX-512 alone; it is faster
# without, too. Whoever has set it, or imported TensorFlow before, decides.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Module: what is public of it.
_PUBLIC = {
    "operations.init": ("Init",),
    "operations.import_checkpoint": ("ImportCheckpoint",),
    "operations.push": ("Push",),
    "operations.chunk": ("Chunk",),
    "operations.annotate": ("Annotate",),
    "operations.train_tagger": ("TrainTagger",),
    "operations.embed": ("Embed",),
    "operations.build_index": ("BuildIndex",),
    "operations.plan": ("Plan",),
    "operations.inverse_cloze_task": ("InverseClozeTask",),
    "operations.pretrain": ("Pretrain",),
    "operations.probe": ("Probe",),
    "operations.prepare_questions": ("PrepareQuestions",),
    "operations.fine_tune": ("FineTune",),
    "operations.evaluate": ("Evaluate",),
    "operations.retrieve": ("Retrieve",),
    "operations.compare": ("Compare",),
    "operations.export": ("Export",),
    "operations.verify": ("Verify",),
    "operations.serve": ("Serve",),
    "operations.ask": ("Ask",),
    "operations.inspect": ("Inspect",),
    "operations.live_corpus": (
        "CreateCorpus",
        "SyncCorpus",
        "CompactCorpus",
        "CorpusStatus",
    ),
    "operations.corpus_sync": ("Corpus",),
    "operations.quickstart": ("Quickstart",),
    "operations.graph": ("Graph",),
    "artifacts.objects": (
        "Blocks",
        "Passages",
        "Embeddings",
        "Index",
        "Model",
        "Tagger",
        "QuestionSet",
        "Evaluation",
        "Comparison",
        "SavedModel",
        "open_any",
    ),
    "artifacts.question_files": ("Questions",),
    "models.model_directory": ("load",),
    "answering.answerer": ("Answerer",),
    "models.bert_encoder": ("BertEncoder",),
    "models.embedder": ("Embedder",),
    "models.knowledge_augmented_encoder": ("KnowledgeAugmentedEncoder",),
    "models.open_qa": ("OpenQa",),
    "models.packing": ("JoinBert", "pack_text"),
    "models.reader": ("Reader",),
    "models.realm": ("MarginalLikelihood", "RealmModel"),
    "text.tokenizer": ("Tokenizer",),
}
MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "InputError",
    "__version__",
    *MODULES,
]


def __getattr__(name):
    # Keras and TensorFlow are imported when they are used, not when the
    # package is.
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__():
    return sorted(__all__)
