"""Text of the loop over batches in a program: Keras's, or a plain one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from etlrun.eject import optimizers
from etlrun.eject.place import differs_by_pass
from etlrun.eject.sources import reading
from etlrun.eject.text import call, function, listed, quoted
from etlrun.plan.plan import Plan, reads_features
from etlrun.stages.applications import unfreeze
from etlrun.stages.logger import Logger
from etlrun.stages.metrics import is_loss
from etlrun.stages.model import Emulated
from etlrun.stages.phases import PlannedPhase
from etlrun.stages.trainer import Drain, EarlyStopping, Trainer

Lines = Sequence[str]

_ON_CPU = ('tf.config.set_visible_devices([], "GPU")',)
_ON_GPU = ('if not tf.config.list_physical_devices("GPU"):', '    raise SystemExit("no GPU was found")')
_DEVICES: dict[str, Lines] = {"auto": (), "cpu": _ON_CPU, "gpu": _ON_GPU}

_PREPARED = ("builder()  # before the seeds are set: TFDS draws random numbers while it prepares a dataset",)
_HEAD = (
    "top = classifier.layers[-1]",
    "base = keras.Model(classifier.input, top.input)",
    "head = keras.Sequential([keras.Input(top.input.shape[1:]), top])",
)
_LOGGERS = {
    "tensorboard": 'keras.callbacks.TensorBoard("tensorboard", write_graph=False)',
    "csv": 'keras.callbacks.CSVLogger("epochs.csv")',
}
"""Keras's own loggers; a program has no others."""
_QUIET = (
    "# Keras doesn't know the length of a validation pass, and warns at its end as if data had run out.",
    'warnings.filterwarnings("ignore", message="Your input ran out of data")',
)


def fit(stage: Trainer, plan: Plan) -> tuple[str, ...]:
    """Return the text of Keras's loop; an emulated model has a plain one."""
    if not plan.spec.model.learns:
        return ()
    policy = f"keras.config.set_dtype_policy({quoted(stage.mixed_precision or '')})"
    phases = [_phase(stage, plan, phase) for phase in stage.planned_phases]
    names = [f"history_{phase.number}" for phase in stage.planned_phases]
    returned = "history" if stage.phases is None else f"[{', '.join(names)}]"
    body = (
        *_DEVICES[stage.device],
        *([policy] if stage.mixed_precision else []),
        *(_PREPARED if plan.spec.dataset.is_of_tfds else ()),
        "keras.utils.set_random_seed(SEED)",
        *_seeded(plan),
        "classifier = model()",
        *(_HEAD if reads_features(plan) else ()),
        *(_QUIET if plan.evaluation and stage.phases is not None else ()),
        *(line for lines, _ in phases for line in lines),
        'classifier.save("model.keras")',
        f"return {returned}",
    )
    says = "Train the model, and save it as model.keras in the working directory."
    one = "keras.callbacks.History"
    gives = one if stage.phases is None else f"list[{one}]"
    functions = dict.fromkeys(of for _, needed in phases for of in needed)
    return (*functions, function(f"train() -> {gives}", says, *body))


def _phase(stage: Trainer, plan: Plan, phase: PlannedPhase) -> tuple[Lines, Lines]:
    """Return the lines that compile and fit a model in one phase, and the functions that they need."""
    is_whole = stage.phases is None
    is_later = plan.unfrozen is not None and phase.unfreeze is not None
    part, suffix = (plan.unfrozen, "images") if plan.unfrozen is not None and is_later else (plan, "dataset")
    model, base = ("head", ["base"]) if reads_features(part) else ("classifier", [])
    flow, steps = plan.spec.dataset.examples, _steps(part, suffix)
    objective, functions = optimizers.objective(plan, stage, is_class=flow.features[flow.target].is_class)
    epochs = "EPOCHS" if is_whole else str(phase.epochs)
    optimizer, classes = optimizers.optimizer(stage.in_phase(phase), f"{epochs} * {_multiplied(steps)}")
    passes = [] if is_whole else [*(_first(phase) if differs_by_pass(part.train) else []), f"passes={phase.epochs}"]
    validation = f"validation_{suffix}({', '.join(base)})"
    lines = [
        *_unfrozen(plan, phase),
        call(
            f"{model}.compile",
            f"optimizer={optimizer}",
            *objective,
            f"jit_compile={quoted(stage.jit_compile) if isinstance(stage.jit_compile, str) else stage.jit_compile}",
        ),
        *(_QUIET if plan.evaluation and is_whole else ()),
        call(
            f"{'history' if is_whole else f'history_{phase.number}'} = {model}.fit",
            f"train_{suffix}({', '.join([*base, *passes])})",
            *([f"initial_epoch={phase.done}"] if phase.done else []),
            f"epochs={'EPOCHS' if is_whole else phase.end}",
            f"steps_per_epoch={steps}",
            *([f"validation_data={validation}"] if plan.evaluation else []),
            *_callbacks(stage, plan.spec.logger),
            "shuffle=False",
            "verbose=2",
        ),
    ]
    needed = [inspect.getsource(unfreeze).rstrip()] if phase.unfreeze is not None else []
    return lines, [*functions, *classes, *needed]


def _first(phase: PlannedPhase) -> Lines:
    return (f"first={phase.done + 1}",)


def _unfrozen(plan: Plan, phase: PlannedPhase) -> Lines:
    if phase.unfreeze is None:
        return ()
    return (f"unfreeze(classifier.layers[-2], {plan.spec.model.last_layers(phase.unfreeze)})",)


def _seeded(plan: Plan) -> Lines:
    if not any(planned.stage.random for planned in plan.train):
        return ()
    return ("tf.random.set_seed(SEED + 1)  # for shuffling; with 0, tf.data accepts no tensor as seed",)


def _callbacks(stage: Trainer, logger: Logger) -> Lines:
    callbacks = ["keras.callbacks.TerminateOnNaN(raise_error=True)"] if stage.on_nan == "fail" else []
    callbacks += [] if stage.ema_momentum is None else ["keras.callbacks.SwapEMAWeights()"]
    callbacks += [] if stage.early_stopping.patience is None else [_stopping(stage.early_stopping)]
    callbacks += [_LOGGERS[logger.name]] if logger.name in _LOGGERS else []
    return [f"callbacks={listed(*callbacks)}"] if callbacks else []


def _stopping(rule: EarlyStopping) -> str:
    return call(
        "keras.callbacks.EarlyStopping",
        f"monitor={quoted(rule.monitor)}",
        f"patience={rule.patience}",
        f"min_delta={rule.min_delta}",
        f"mode={quoted('min' if is_loss(rule.monitor) else 'max')}",
    )


def _steps(plan: Plan, suffix: str = "dataset") -> str:
    """Return the steps of an epoch: the configured number, or those of a pass, counted first if records are skipped."""
    trainer, fit = plan.spec.trainer, plan.spec.fit
    if trainer.steps_per_epoch is not None:
        return str(trainer.steps_per_epoch)
    if plan.spec.dataset.on_corrupt == "skip":
        first = _first(fit.planned_phases[0]) if fit is not None and fit.phases else ()
        given = [*(["base"] if reads_features(plan) else []), *(first if differs_by_pass(plan.train) else ())]
        return f"sum(1 for _ in train_{suffix}({', '.join([*given, 'passes=1'])}))"
    examples = reading(plan.spec.dataset, "TRAIN_SPLIT").count
    return f"{examples} // BATCH_SIZE" if plan.spec.load.drop_remainder else f"math.ceil({examples} / BATCH_SIZE)"


def _multiplied(steps: str) -> str:
    """Return the expression so that it can be multiplied."""
    return f"({steps})" if " // " in steps else steps


def _rows(plan: Plan) -> tuple[str, str]:
    """Return the variables of a batch, and the one of them that has a row per example."""
    return ("images, _", "images") if len(plan.spec.dataset.examples.inputs) == 1 else ("_, targets", "targets")


def emulated(stage: Emulated, plan: Plan) -> tuple[str, ...]:
    """Return the text of a loop that sleeps for each step."""
    fit, (batch, rows) = plan.spec.fit, _rows(plan)
    validation = ("    for _ in validation:", f"        time.sleep({stage.eval_step_ms / 1000})")
    body = (
        *(_DEVICES[fit.device] if fit is not None else ()),
        *_seeded(plan),
        f"steps = {_steps(plan)}",
        "batches = iter(train_dataset())",
        *(["validation = validation_dataset()"] if plan.evaluation else []),
        "for epoch in range(1, EPOCHS + 1):",
        "    began_s, examples = time.perf_counter(), 0",
        f"    for {batch} in itertools.islice(batches, steps):",
        f"        time.sleep({stage.step_ms / 1000})",
        f"        examples += len({rows})",
        "    wall_s = time.perf_counter() - began_s",
        *(validation if plan.evaluation else ()),
        '    print(f"epoch {epoch}: {wall_s:.2f} s, {examples / wall_s:.1f} examples/s")',
    )
    says = "Hold each batch for as long as the accelerator would, and print the throughput."
    return (function("train() -> None", says, *body),)


def drain(stage: Drain, plan: Plan) -> tuple[str, ...]:
    """Return the text of a loop that only reads."""
    batch, rows = _rows(plan)
    is_late = () if stage.seconds is None else ("if time.perf_counter() > end_s:", "    break")
    body = (
        *_ON_CPU,
        *_seeded(plan),
        f"steps = {_steps(plan)}",
        "batches = iter(train_dataset())",
        *([] if stage.seconds is None else [f"end_s = time.perf_counter() + {stage.seconds}"]),
        f"for number in {'itertools.count(1)' if stage.epochs is None else 'range(1, EPOCHS + 1)'}:",
        "    began_s, examples = time.perf_counter(), 0",
        f"    for {batch} in itertools.islice(batches, steps):",
        f"        examples += len({rows})",
        *(f"        {line}" for line in is_late),
        "    wall_s = time.perf_counter() - began_s",
        '    print(f"pass {number}: {wall_s:.2f} s, {examples / wall_s:.1f} examples/s")',
        *(f"    {line}" for line in is_late),
    )
    return (function("drain() -> None", "Read the batches, and print the throughput.", *body),)
