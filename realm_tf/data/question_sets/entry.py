"""One question of a published file, as its reader hands it on."""

import dataclasses


@dataclasses.dataclass(slots=True)
class Entry:
    """A question as it was read, before it is checked and merged.

    Args:
        place: str. The file and the line or entry, for messages.
        question: str. Exactly as the file has it.
        answers: list of str. Accepted answers, or patterns.
        answer_type: str. `"string"` or `"regex"`.
        extra: dict. Further keys of the line that is written.
        dropped: str. Why it is no open question, such as `"impossible"`, or
            `""`.
    """

    place: str
    question: str
    answers: list[str]
    answer_type: str = "string"
    extra: dict = dataclasses.field(default_factory=dict)
    dropped: str = ""
