"""The names of an export's signatures. Imports no TensorFlow."""

# Of requests that name none.
DEFAULT = "serving_default"
RETRIEVE = "retrieve"
EMBED_QUERY = "embed_query"
EMBED_BLOCK = "embed_block"
# What a name ends in that takes a filter beside the question.
FILTERED = "_filtered"
FILTER = "filter"
# What gives nothing of a block.
WITHOUT_BLOCKS = frozenset({EMBED_QUERY, EMBED_BLOCK})
# Directory of a version of a corpus that changes: the SavedModel whose
# signatures make and write the variables of a state.
WRITER = "assets.extra/writer"
SAVE, READ_FIELDS = "save", "read_fields"
