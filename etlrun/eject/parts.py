"""Text of the parts of a run that are not pipelines: the model, and the loop over batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etlrun.eject.pipeline import differs_by_pass, has_phases, name_of_transform
from etlrun.eject.printed.loops import class_weights, num_batches, read_passes
from etlrun.eject.text import call, function, listed, literal, mapping, of_data, sources, sources_of
from etlrun.planning.plan import Plan, given_to_model, kept_by, reads_features, stage_of
from etlrun.stages.flow import Flow
from etlrun.stages.keras_objects import base, head, objectives, optimizer, unstandardized
from etlrun.stages.keras_objects import callbacks as own_callbacks
from etlrun.stages.load import Bucket
from etlrun.stages.made import Made, Text, quoted, user_path
from etlrun.stages.measure import Logger
from etlrun.stages.model import Emulated, ImageModel, scaled_for_imagenet, set_momentum, unfreeze, without_dropout
from etlrun.stages.network import Network, embedded, masks, vectors
from etlrun.stages.objectives import falls, loss_of
from etlrun.stages.plugins import source, with_called
from etlrun.stages.trainer import Drain, PlannedPhase, Trainer
from etlrun.stages.words import set_vectors, vectors_in

Lines = Sequence[str]

_DEVICES: dict[str, Lines] = {
    "auto": (),
    "cpu": ('tf.config.set_visible_devices([], "GPU")',),
    "gpu": ('if not tf.config.list_physical_devices("GPU"):', '    raise SystemExit("no GPU was found")'),
}

_PREPARED = ("builder()  # before the seeds are set: TFDS draws random numbers while it prepares a dataset",)
_HEAD = (
    "top = classifier.layers[-1]",
    "base = keras.Model(classifier.input, top.input)",
    "head = keras.Sequential([keras.Input(top.input.shape[1:]), top])",
)
_QUIET = (
    "# Keras doesn't know the length of a validation pass, and warns at its end as if data had run out.",
    'warnings.filterwarnings("ignore", message="Your input ran out of data")',
)


def fit(stage: Trainer, plan: Plan) -> tuple[str, ...]:
    """Return the text of Keras's loop."""
    is_whole, begun, saved = stage.phases is None, *_kept(stage, plan)
    phases = [_phase(stage, plan, phase) for phase in stage.planned_phases]
    returned = "history" if is_whole else f"[{', '.join(f'history_{of.number}' for of in stage.planned_phases)}]"
    body = (
        *_DEVICES[stage.device],
        *[literal(Made("keras.config.set_dtype_policy", (stage.mixed_precision,)))] * bool(stage.mixed_precision),
        *_PREPARED * plan.spec.dataset.is_of_tfds,
        "keras.utils.set_random_seed(SEED)",
        *_seeded(plan),
        "classifier = model()",
        *_HEAD * reads_features(plan),
        *_QUIET * (bool(plan.evaluation) and not is_whole),
        *begun,
        *(line for lines, _ in phases for line in lines),
        *saved,
        *[f"return {returned}"] * (bool(saved) or not is_whole),
    )
    which = "that of the best epoch" if begun else "it"
    says = f"Train the model, and save {which} as model.keras in the working directory."
    gives = "keras.callbacks.History" if is_whole else "list[keras.callbacks.History]"
    functions = dict.fromkeys(of for _, needed in phases for of in needed)
    return (*functions, function(f"train() -> {gives}", says, *body))


def _kept(stage: Trainer, plan: Plan) -> tuple[Lines, Lines]:
    """Return the lines before and behind the training that save its model: of the best epoch, if it is kept."""
    monitor, save = kept_by(plan.spec), 'classifier.save("model.keras")'
    if monitor is None:
        return (), (save,)
    if stage.ema_momentum is not None or reads_features(plan):  # the model that Keras's callback would save is another
        return (), (f"# This is the last epoch: a run keeps the best one by {monitor}.", save)
    given = {"monitor": monitor, "mode": "min" if falls(monitor) else "max", "save_best_only": True}
    return (f"best = {literal(Made('keras.callbacks.ModelCheckpoint', ('model.keras',), given))}",), ()


def _phase(stage: Trainer, plan: Plan, phase: PlannedPhase) -> tuple[Lines, Lines]:
    """Return the lines that compile and fit a model in one phase, and the functions that they need."""
    is_whole, dataset = stage.phases is None, plan.spec.dataset
    is_later = plan.unfrozen is not None and phase.unfreeze is not None
    part, suffix = (plan.unfrozen, "images") if plan.unfrozen is not None and is_later else (plan, "dataset")
    model, base = ("head", ["base"]) if reads_features(part) else ("classifier", [])
    steps, counts = _steps(part, suffix)
    epochs, end = ("EPOCHS", "EPOCHS") if is_whole else (str(phase.epochs), str(phase.end))
    total = Text(f"{epochs} * {f'({steps})' if ' // ' in steps else steps}")
    target, is_balanced = dataset.examples.features[dataset.examples.target], plan.spec.load.class_weights == "balanced"
    compiled = {
        "optimizer": optimizer(stage.in_phase(phase), total),
        **objectives(
            stage,
            given_to_model(plan.train),
            (target.classes or Text("classes()")) if target.is_class else None,
            dataset.loss_weights,
            class_weights=Text("class_weights()") if is_balanced else None,
            mixes=plan.spec.load.mixes,
        ),
        "jit_compile": stage.jit_compile or False,
    }
    passes = [*[f"first={phase.done + 1}"] * differs_by_pass(part.train), f"passes={phase.epochs}"] * (not is_whole)
    validation = f"validation_data=validation_{suffix}({', '.join(base)})"
    begun, saved = _kept(stage, plan)
    given = ("history = " if saved else "return ") if is_whole else f"history_{phase.number} = "
    used: list[Callable[..., Any]] = [class_weights] * is_balanced + [unfreeze] * (phase.unfreeze is not None)
    lines = [
        *(f"unfreeze(classifier.layers[-2], {plan.spec.model.last_layers(of)})" for of in [phase.unfreeze] if of),
        literal(Made(f"{model}.compile", (), compiled)),
        *_QUIET * (bool(plan.evaluation) and is_whole),
        call(
            f"{given}{model}.fit",
            f"train_{suffix}({', '.join([*base, *passes])})",
            *[f"initial_epoch={phase.done}"] * bool(phase.done),
            f"epochs={end}",
            f"steps_per_epoch={steps}",
            *[validation] * bool(plan.evaluation),
            *_callbacks(stage, plan.spec.logger, has_best=bool(begun)),
            "shuffle=False",
            "verbose=2",
        ),
    ]
    return lines, [*counts, *sources_of(dataset, [compiled, own_callbacks(stage)]), *sources(dataset, *used)]


def _seeded(plan: Plan) -> Lines:
    text = "tf.random.set_seed(SEED + 1)  # for shuffling; with 0, tf.data accepts no tensor as seed"
    return [text] * any(planned.stage.random for planned in plan.train)


def _callbacks(stage: Trainer, logger: Logger, *, has_best: bool) -> Lines:
    rule = stage.early_stopping
    callbacks: list[Any] = [
        *[Made("keras.callbacks.TerminateOnNaN", (), {"raise_error": True})] * (stage.on_nan == "fail"),
        *[Made("keras.callbacks.SwapEMAWeights")] * (stage.ema_momentum is not None),
        *[Made("keras.callbacks.EarlyStopping", (), rule.arguments)] * (rule.patience is not None),
        *own_callbacks(stage),
        *[Text("best")] * has_best,
        *[logger.callback] * (logger.callback is not None),  # Keras's own; a program has no others
    ]
    return [f"callbacks={listed(*map(literal, callbacks))}"] * bool(callbacks)


def _steps(plan: Plan, suffix: str = "dataset") -> tuple[str, Lines]:
    """Return the steps of an epoch: the configured number, or those of a pass; and the functions that count them."""
    trainer, load, dataset = plan.spec.trainer, plan.spec.load, plan.spec.dataset
    if trainer.steps_per_epoch is not None:
        return str(trainer.steps_per_epoch), ()
    if dataset.on_corrupt == "skip":
        given = ["base"] * reads_features(plan) + ["first=1"] * (has_phases(plan) and differs_by_pass(plan.train))
        return f"sum(1 for _ in train_{suffix}({', '.join([*given, 'passes=1'])}))", ()
    if stage_of(plan.train, Bucket) is not None:
        given = ["TRAIN_SPLIT", name_of_transform(plan, "train"), f"drop_remainder={load.drop_remainder}"]
        return call("num_batches", *given), sources(dataset, num_batches)
    examples = "num_examples(TRAIN_SPLIT)"
    steps = f"{examples} // BATCH_SIZE" if load.drop_remainder else f"math.ceil({examples} / BATCH_SIZE)"
    return steps, sources(dataset, of_data(dataset, "num_examples"))


def _loop(plan: Plan) -> Lines:
    """Return the text of a loop without a model: one that sleeps for each step, or one that only reads."""
    stage, trainer, fit = plan.spec.model, plan.spec.trainer, plan.spec.fit
    steps, counts = _steps(plan)
    begun = Text("train_dataset()"), Text(steps), None if trainer.epochs is None else Text("EPOCHS")
    name, devices, says = "drain", _DEVICES["cpu"], "Read the batches, and print the throughput."
    given: dict[str, Any] = {} if trainer.seconds is None else {"seconds": trainer.seconds}
    if isinstance(stage, Emulated) and fit is not None:
        name, devices, step_s = "train", _DEVICES[fit.device], (stage.step_ms / 1000, stage.eval_step_ms / 1000)
        says = "Hold each batch for as long as the accelerator would, and print the throughput."
        given = {"step_s": step_s} | ({"validation": Text("validation_dataset()")} if plan.evaluation else {})
    read = literal(Made("read_passes", begun, given))
    made = function(f"{name}() -> None", says, *devices, *_seeded(plan), read)
    return (*counts, *sources(plan.spec.dataset, read_passes), made)


def image_model(stage: ImageModel, plan: Plan) -> Lines:
    """Return the function of the model, with the scaling that the pipeline leaves to it."""
    flow, dataset, momentum = given_to_model(plan.train), plan.spec.dataset, stage.batch_norm_momentum
    scaling: list[Any] = [planned.stage for planned in plan.by_model]
    weights = None if stage.weights is None else user_path(stage.weights)  # or the name of those of Keras
    functions = [without_dropout] * stage.is_undropped + [scaled_for_imagenet] * stage.is_scaled_by_weights
    heads, outputs = _heads(plan, flow)
    body = (
        f"inputs = pixels = {_input(flow, flow.inputs[0], 'image')}",
        *(
            f"pixels = {literal(Made('keras.layers.Rescaling', (Text(step.written),), {'dtype': 'float32'}))}(pixels)"
            for step in scaling
        ),
        f"base = {literal(base(stage, flow.feature(flow.inputs[0]).shape, weights))}",
        *(f"base = {function.__name__}(base)" for function in functions),
        *["base.trainable = False"] * (not stage.trainable),
        *[f"set_momentum(base, {momentum})"] * (momentum is not None),
        "features = base(pixels)",
        *heads,
        f"return keras.Model(inputs, {outputs})",
    )
    is_class = dataset.examples.features[flow.target].is_class
    what = "the probabilities of their classes" if is_class else " and ".join(flow.targets)
    made = function("model() -> keras.Model", f"Return a model from images to {what}.", *body)
    return (*sources(dataset, *functions, *[set_momentum] * (momentum is not None)), made)


def _input(flow: Flow, feature: str, name: str) -> str:
    of = flow.features[feature]
    return literal(Made("keras.Input", (of.shape,), {"dtype": of.dtype, "name": name}))


def _heads(plan: Plan, flow: Flow) -> tuple[list[str], str]:
    """Return the lines that make the layers of the targets on features, and the expression of the predictions."""
    lines, outputs, trained = [], {}, plan.spec.fit.loss if plan.spec.fit is not None else ""
    for place, name in enumerate(flow.targets):
        target, declared = flow.features[name], plan.spec.dataset.examples.features[name]
        count: Any = len(target.classes) or None
        if len(flow.targets) == 1:  # whose number of classes a config or the data have
            count = (len(declared.classes) or Text("num_classes()")) if declared.is_class else None
        of: dict[str, Any] = {"place": place, "inputs": flow.inputs}
        layers = {
            "dense": head(target, count, loss_of(target, trained), **of),
            "rescaling": unstandardized(target, **of),
        }
        output = "features"
        for layer, made in layers.items():
            if made is not None:
                variable = f"{layer}_{place}" if place else layer
                lines.append(f"{variable} = {literal(made)}")
                output = f"{variable}({output})"
        outputs[quoted(name)] = output
    if len(outputs) == 1:
        return lines, output
    return [*lines, mapping("outputs = ", outputs)], "outputs"


def _network(stage: Network, plan: Plan) -> Lines:
    """Return the functions of a network, and of the model that it makes, with the vectors of files."""
    from etlrun.sources.rows.fitting import arguments_of_vectors  # which imports Arrow

    flow, columns = given_to_model(plan.train), plan.spec.columns
    given = "inputs" if len(flow.inputs) > 1 else f"inputs[{quoted(flow.inputs[0])}]"
    heads, outputs = ([], "features") if stage.predicts else _heads(plan, flow)
    arguments = [Made("vectors", (Text("inputs"),), {"embedded": embedded(flow)})]
    arguments += [Made("masks", (Text("inputs"),), {"sequences": [*flow.sequences]})] * stage.takes_sequences
    loaded = []
    for output in [] if columns is None else [output for output in columns.outputs if output.weights is not None]:
        words, others = arguments_of_vectors(output)
        loaded.append(literal(Made("loaded = vectors_in", (user_path(str(output.weights)),), words)))
        loaded.append(literal(Made("set_vectors", (Text("made"),), {"vectors": Text("loaded"), **others})))
    body = (
        mapping("inputs = ", {quoted(name): _input(flow, name, name) for name in flow.inputs}),
        literal(Made(f"features = {stage.network.__name__}", tuple(arguments), stage.arguments)),
        *heads,
        f"{'made =' if loaded else 'return'} keras.Model({given}, {outputs})",
        *loaded,
        *["return made"] * bool(loaded),
    )
    functions: list[Callable[..., Any]] = [vectors, *[masks] * stage.takes_sequences, *with_called(stage.network)]
    return (
        *(sources(plan.spec.dataset, vectors_in, set_vectors) if loaded else ()),
        *(source(of).removeprefix("@staticmethod\n") for of in functions),
        function("model() -> keras.Model", f"Return a model of {' and '.join(flow.targets)}.", *body),
    )


def parts(plan: Plan) -> Lines:
    """Return the functions of the model and of the loop; a profile is not part of a program."""
    stage, trainer = plan.spec.model, plan.spec.trainer
    if isinstance(trainer, Drain) or isinstance(stage, Emulated):
        return _loop(plan)
    made = _network(stage, plan) if isinstance(stage, Network) else image_model(stage, plan)
    return *made, *fit(trainer, plan)
