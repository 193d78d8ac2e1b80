"""A SavedModel in this process that is asked as a server is."""

from realm_tf.answering.answer import Answer
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.answers import to_answers
from realm_tf.serving.request_error import RequestError


class LocalModel:
    """A SavedModel in this process that answers as `RealmClient` does.

    Args:
        saved_model: str. Its base directory or a version directory.

    Attributes:
        evidence_license: str. Under what terms the evidence is, as the
            export's card says; `None` if it does not. TF Serving's protocol
            has no place for it, so a server does not tell.

    Raises:
        InputError: if there is no SavedModel or it does not load.
    """

    def __init__(self, saved_model: str):
        from realm_tf.artifacts import saved_models

        # A wrong path shows before TensorFlow is imported.
        saved_models.find_version(saved_model)
        from realm_tf.serving import servable

        self._servable = servable.SavedModelServable(saved_model)
        self.evidence_license = self._servable.card.get("evidence_license")

    def __enter__(self) -> "LocalModel":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model."""
        self._servable.close()

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers questions in one batch; see `RealmClient.ask`."""
        import numpy as np

        if not questions:
            return []
        texts = [question.encode("utf-8", "replace") for question in questions]
        try:
            outputs = self._servable.run(
                {"question": np.array(texts, dtype=object)}
            )
        except RequestError as error:
            raise RealmServerError(error.code.name, error.message) from error
        return to_answers(
            {name: array.tolist() for name, array in outputs.items()},
            count=len(questions),
        )
