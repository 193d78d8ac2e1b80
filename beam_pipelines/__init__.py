"""Pipelines over whole corpora, on Apache Beam."""

import logging


def _is_of_interest(record):
    # Without its `gcp` extra Beam complains at every import.
    return not record.getMessage().startswith("apitools not found")


logging.getLogger().addFilter(_is_of_interest)
