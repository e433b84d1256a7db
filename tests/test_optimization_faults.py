"""Schedules, limits of gradients, losses and metrics that do not fit each other, the run or its data."""

import pytest

from etlrun.planning.training import past_classes, warmup_past
from tests.configs import refusal_of_plan, refusal_of_spec
from tests.test_optimization import trainer

COSINE = "trainer.schedule.name=cosine"
FAULTS = {
    ("trainer.schedule.alpha=0.5",): (
        "trainer.schedule.alpha: found 0.5; expected 0.0 with trainer.schedule.name=constant\n"
        "    -> set trainer.schedule.alpha=0.0"
    ),
    (COSINE, "trainer.schedule.boundaries=[3]"): (
        "trainer.schedule.boundaries: found [3]; expected [] with trainer.schedule.name=cosine\n"
        "    -> set trainer.schedule.boundaries=[]"
    ),
    ("trainer.schedule.name=exponential",): (
        "trainer.schedule.decay_rate: found null; expected the factor of the decay\n"
        "    -> set trainer.schedule.decay_rate=0.1, or another one"
    ),
    ("trainer.schedule.name=piecewise", "trainer.schedule.warmup_steps=4", "trainer.schedule.boundaries=[4]"): (
        "trainer.schedule.boundaries: found [4]; expected steps after the 4 of the warm-up, in increasing order\n"
        "    -> list the steps in trainer.schedule.boundaries\n"
        "trainer.schedule.factors: found []; expected 1 factors, one after each boundary\n"
        "    -> list the factors in trainer.schedule.factors"
    ),
    ("trainer.clipnorm=1", "trainer.clipvalue=2"): (
        "trainer.clipvalue: found 2.0; expected null with trainer.clipnorm, since gradients are clipped in one way\n"
        "    -> set trainer.clipvalue=null or trainer.clipnorm=null"
    ),
    ("trainer.gradient_accumulation_steps=1",): (
        "trainer.gradient_accumulation_steps: found 1; expected an integer from 2 to 1,000,000, or null"
    ),
    ("trainer.metrics=[f1,f1]",): (
        "trainer.metrics: found ['f1', 'f1']; expected each metric once\n    -> name it once"
    ),
    ("trainer.metrics=[top_0_accuracy]",): (
        "trainer.metrics: found ['top_0_accuracy']; expected a list of accuracy, top_N_accuracy, precision, recall, "
        "f1, recall_of_CLASS, auc, mae, rmse or r2"
    ),
    ("trainer.focal_gamma=1",): (
        "trainer.focal_gamma: found 1.0; expected 2.0 with trainer.loss=crossentropy\n"
        "    -> set trainer.loss=focal_crossentropy"
    ),
    ("trainer.loss=focal",): (
        "trainer.loss: found 'focal'; expected crossentropy or focal_crossentropy; of numbers mean_squared_error, "
        "mean_absolute_error, huber or poisson\n"
        "    -> did you mean `focal_crossentropy`?"
    ),
}


@pytest.mark.parametrize("words", FAULTS, ids=" ".join)
def test_what_does_not_fit_is_refused(words: tuple[str, ...]) -> None:
    assert refusal_of_spec(*words) == FAULTS[words]


RULES = {
    ("trainer.checkpoint_best=val_f1",): (
        "trainer.checkpoint_best: found 'val_f1'; expected a metric of the run: loss, accuracy, val_loss, "
        "val_accuracy\n    -> choose one, or add f1 to trainer.metrics"
    ),
    ("trainer.metrics=[accuracy,f1,recall_of_a]", "load.mixup_alpha=0.2"): (
        "trainer.metrics: found ['accuracy', 'f1', 'recall_of_a']; expected no f1 or recall_of_a with mixed images, "
        "which have two classes\n    -> remove f1 and recall_of_a, or set load.mixup_alpha=0 and load.cutmix_alpha=0"
    ),
    (COSINE, "dataset.on_corrupt=skip"): (
        "trainer.schedule.decay_steps: found null; expected a number with dataset.on_corrupt=skip, since the length of "
        "a pass is then unknown\n    -> set trainer.schedule.decay_steps, or repair the data and set "
        "dataset.on_corrupt=raise"
    ),
    (COSINE, "trainer.steps_per_epoch=5", "trainer.schedule.warmup_steps=20"): (
        "trainer.schedule.warmup_steps: found 20; expected fewer than the 20 steps of the run, of which the decay "
        "takes the rest\n    -> set a smaller one, or trainer.schedule.decay_steps, or train longer"
    ),
}


@pytest.mark.parametrize("words", RULES, ids=" ".join)
def test_what_does_not_fit_the_data_is_refused(words: tuple[str, ...]) -> None:
    assert refusal_of_plan(*words) == RULES[words]


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
