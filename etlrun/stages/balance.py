"""Training splits whose classes differ in size: their figures, and the weights of their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etlrun.stages.load import Load

_MOST_NAMED = 20


def balanced(counts: list[int]) -> list[float]:
    """Return the weight of each class: the inverse of its share of all `counts`, so that the mean over examples is 1.

    The definition is that of scikit-learn's `class_weight="balanced"`; a class without examples has weight 0.
    """
    present = sum(count > 0 for count in counts)
    return [sum(counts) / (present * count) if count else 0.0 for count in counts]


def note_of_classes(load: Load, split: str, count: Callable[[], Mapping[str, int] | None]) -> str | None:
    """Return the sentence on the classes of the training split; None where training doesn't depend on their sizes.

    `count` returns the number of examples of each class by its name; None, as a plan may have to, if they are unknown.
    """
    is_weighted, is_drawn = load.class_weights != "none", load.sample != "all"
    if not is_weighted and not is_drawn:
        return None
    name = "class_weights" if is_weighted else "sample"
    setting, also = f"{load.key(name)} = {getattr(load, name)}", ", with their weights" if is_weighted else ""
    counts = count()
    if counts is None:
        return f"{setting}: a run counts the labels of '{split}' when it starts, and notes the examples by class{also}."
    listed = [f"{of} {examples:,}" for of, examples in counts.items()]
    if is_weighted:
        listed = [f"{text} ({weight:.3g})" for text, weight in zip(listed, balanced([*counts.values()]), strict=True)]
    more = f", and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    named = ", ".join(listed[:_MOST_NAMED])
    return f"{setting}: training examples by class{also and f'{also},'} are {named}{more}."
