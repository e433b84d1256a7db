"""Schedules, limits of gradients, losses and metrics that do not fit each other, the run or its data."""

from etlrun.planning.plan import past_classes, warmup_past
from tests.test_optimization import trainer


def test_what_only_open_data_tell_is_refused() -> None:
    assert not [*past_classes(trainer("metrics=[top_2_accuracy,recall_of_cat,f1]"), ("ant", "bee", "cat"))]
    faults = [*past_classes(trainer("metrics=[top_3_accuracy,recall_of_cats,f1_of_x]"), ("ant", "bee", "cat"))]
    assert [str(fault).partition("; ")[2] for fault in faults] == [
        "expected at most top_2_accuracy, since there are 3 classes\n    -> name a smaller number",
        "expected one of ant, bee, cat\n    -> did you mean `cat`?",
        "expected one of ant, bee, cat",
    ]
    assert str(faults[1]).startswith("trainer.metrics: found the class cats; ")
    assert not [*warmup_past(trainer("schedule.name=cosine", "schedule.warmup_steps=9"), 10)]
