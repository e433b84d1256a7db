"""Text of a whole program: imports, constants, functions in the order in which they are called, model and loop."""

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etlrun.eject.pipeline import differs_by_pass, functions_of, name_of, pipeline
from etlrun.eject.text import call, complete, constant, function, laid_out, literal, mapping, missing, names_in, of_data
from etlrun.planning.plan import Plan, conflict, given_to_model, kept_by, stage_of
from etlrun.planning.spec import RunSpec, show
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.keras_objects import base, heads, objectives, optimizer
from etlrun.stages.keras_objects import callbacks as own_callbacks
from etlrun.stages.load import Bucket, Service, sizes_of
from etlrun.stages.made import Made, Text, quoted, user_path
from etlrun.stages.model import ImageModel
from etlrun.stages.network import Network, embedded
from etlrun.stages.objectives import falls
from etlrun.stages.plugins import with_called
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import PlannedPhase, Trainer
from etlrun.system import VERSION
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.loading import version_of
from etlrun.system.shell import pasted

Lines = Sequence[str]

_DEVICES: dict[str, Lines] = {
    "auto": (),
    "cpu": ('tf.config.set_visible_devices([], "GPU")',),
    "gpu": ('if not tf.config.list_physical_devices("GPU"):', '    raise SystemExit("no GPU was found")'),
}

_PREPARED = ("builder()  # before the seeds are set: TFDS draws random numbers while it prepares a dataset",)
_QUIET = (
    "# Keras doesn't know the length of a validation pass, and warns at its end as if data had run out.",
    'warnings.filterwarnings("ignore", message="Your input ran out of data")',
)


def fit(stage: Trainer, plan: Plan) -> str:
    """Return the text of Keras's loop."""
    begun, saved = _kept(stage, plan)
    kept = [Text("best")] * bool(begun)
    body = (
        *_DEVICES[stage.device],
        *[literal(Made("keras.config.set_dtype_policy", (stage.mixed_precision,)))] * bool(stage.mixed_precision),
        *_PREPARED * plan.spec.dataset.is_of_tfds,
        "keras.utils.set_random_seed(SEED)",
        *_seeded(plan),
        "classifier = model()",
        *_QUIET * bool(plan.evaluation),
        *(["", _measured(stage), ""] if plan.spec.dataset.sets else []),
        *begun,
        *(line for phase in stage.planned_phases for line in _phase(stage, plan, phase, kept)),
        *saved,
        f"return [{', '.join(f'history_{phase.number}' for phase in stage.planned_phases)}]",
    )
    which = "that of the best epoch" if begun else "it"
    says = f"Train the model, and save {which} as model.keras in the working directory; return each phase's history."
    return function("train() -> list[keras.callbacks.History]", says, *body)


def _measured(stage: Trainer) -> str:
    """Return the function that measures the named validation sets after an epoch."""
    swapped = Text("[keras.callbacks.SwapEMAWeights()]")
    given = {"verbose": 0, "return_dict": True, **({} if stage.ema_momentum is None else {"callbacks": swapped})}
    measure = literal(Made("classifier.evaluate", (Text("validation_dataset(split)"),), given))
    return function(
        "measured(_: int, logs: dict[str, float]) -> None",
        "Add the measures of the named validation sets to the logs of an epoch, which later callbacks get, too.",
        "for name, split in EVAL_SPLITS.items():",
        f"    found = {measure}",
        '    logs.update({f"{name}.{measure}": value for measure, value in found.items()})',
    )


def _kept(stage: Trainer, plan: Plan) -> tuple[Lines, Lines]:
    """Return the lines before and behind the training that save its model: of the best epoch, if it is kept."""
    monitor, save = kept_by(plan.spec), 'classifier.save("model.keras")'
    if monitor is None:
        return (), (save,)
    if stage.ema_momentum is not None:  # the model that Keras's callback would save is another
        return (), (f"# This is the last epoch: a run keeps the best one by {monitor}.", save)
    given = {"monitor": monitor, "mode": "min" if falls(monitor) else "max", "save_best_only": True}
    return (f"best = {literal(Made('keras.callbacks.ModelCheckpoint', ('model.keras',), given))}",), ()


def _phase(stage: Trainer, plan: Plan, phase: PlannedPhase, kept: list[Text]) -> Lines:
    """Return the lines that compile and fit a model in one phase; `kept` is what keeps the best epoch."""
    is_whole, dataset, steps = stage.phases is None, plan.spec.dataset, _steps(plan)
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
    passes = [*[f"first={phase.done + 1}"] * differs_by_pass(plan.train), f"passes={phase.epochs}"] * (not is_whole)
    rule, logger = stage.early_stopping, plan.spec.logger
    has_several = dataset.eval_split is not None and len(given_to_model(plan.train).targets) > 1
    callbacks: list[Any] = [
        *[Made("keras.callbacks.TerminateOnNaN", (), {"raise_error": True})] * (stage.on_nan == "fail"),
        *[Made("keras.callbacks.SwapEMAWeights")] * (stage.ema_momentum is not None),
        *[Made("keras.callbacks.LambdaCallback", (), {"on_epoch_end": Text("measured")})] * bool(dataset.sets),
        *[Made("keras.callbacks.EarlyStopping", (), rule.arguments)] * (rule.patience is not None),
        *own_callbacks(stage),
        *kept,
        *[logger.callback] * (logger.callback is not None),  # Keras's own; a program has no others
    ]
    return [
        *(f"unfreeze(classifier.layers[-2], {plan.spec.model.last_layers(of)})" for of in [phase.unfreeze] if of),
        literal(Made("classifier.compile", (), compiled)),
        *["# Keras reports val_TARGET_loss of each target as the mean over batches."] * has_several,
        call(
            f"history_{phase.number} = classifier.fit",
            f"train_dataset({', '.join(passes)})",
            *[f"initial_epoch={phase.done}"] * bool(phase.done),
            f"epochs={end}",
            f"steps_per_epoch={steps}",
            *["validation_data=validation_dataset()"] * (dataset.eval_split is not None),
            *[laid_out("callbacks=[", [*map(literal, callbacks)], "]", 0)] * bool(callbacks),
            "shuffle=False",
            "verbose=2",
        ),
    ]


def _seeded(plan: Plan) -> Lines:
    text = "tf.random.set_seed(SEED + 1)  # for shuffling; with 0, tf.data accepts no tensor as seed"
    return [text] * any(planned.stage.random for planned in plan.train)


def _steps(plan: Plan) -> str:
    """Return the steps of an epoch: the configured number, or those of a pass."""
    trainer, load = plan.spec.trainer, plan.spec.load
    if trainer.steps_per_epoch is not None:
        return str(trainer.steps_per_epoch)
    if plan.spec.dataset.on_corrupt == "skip":
        return "sum(1 for _ in train_dataset(passes=1))"
    if stage_of(plan.train, Bucket) is not None:
        return call("num_batches", "TRAIN_SPLIT", name_of(plan, "train"), f"drop_remainder={load.drop_remainder}")
    examples = "num_examples(TRAIN_SPLIT)"
    return f"{examples} // BATCH_SIZE" if load.drop_remainder else f"math.ceil({examples} / BATCH_SIZE)"


def image_model(stage: ImageModel, plan: Plan) -> str:
    """Return the function of the model, with the scaling that the pipeline leaves to it."""
    flow, momentum = given_to_model(plan.train), stage.batch_norm_momentum
    scaling: list[Any] = [planned.stage for planned in plan.by_model]
    weights = None if stage.weights is None else user_path(stage.weights)  # or the name of those of Keras
    body = (
        f"inputs = pixels = {_input(flow, flow.inputs[0], 'image')}",
        *(
            f"pixels = {literal(Made('keras.layers.Rescaling', (Text(step.written),), {'dtype': 'float32'}))}(pixels)"
            for step in scaling
        ),
        f"base = {literal(base(stage, flow.feature(flow.inputs[0]).shape, weights))}",
        *["base = without_dropout(base)"] * stage.is_undropped,
        *["base.trainable = False"] * (not stage.trainable),
        *[f"set_momentum(base, {momentum})"] * (momentum is not None),
        "features = base(pixels)",
        call("return keras.Model", "inputs", _heads(plan, flow)),
    )
    return function("model() -> keras.Model", f"Return a model of {' and '.join(flow.targets)}.", *body)


def _input(flow: Flow, feature: str, name: str) -> str:
    of = flow.features[feature]
    return literal(Made("keras.Input", (of.shape,), {"dtype": of.dtype, "name": name}))


def _heads(plan: Plan, flow: Flow) -> str:
    """Return the expression of the predictions of the targets from features: one, or several by name."""
    declared = plan.spec.dataset.examples.features[flow.target]
    count = (len(declared.classes) or Text("num_classes()")) if declared.is_class else None  # of a single target
    outputs = {}
    num_heads = plan.spec.model.num_heads if isinstance(plan.spec.model, Network) else 1
    for name, layers in heads(flow, count, num_heads, plan.spec.dataset.loss_weights).items():
        outputs[quoted(name)] = functools.reduce(lambda given, layer: f"{literal(layer)}({given})", layers, "features")
    return mapping("", outputs) if len(outputs) > 1 else outputs[quoted(flow.target)]


def _network(stage: Network, plan: Plan) -> str:
    """Return the function of the model that a network makes."""
    flow = given_to_model(plan.train)
    given = "inputs" if len(flow.inputs) > 1 else f"inputs[{quoted(flow.inputs[0])}]"
    outputs = "features" if stage.predicts else _heads(plan, flow)
    arguments = [Made("vectors", (Text("inputs"),), {"embedded": embedded(flow)})]
    arguments += [Made("masks", (Text("inputs"),), {"sequences": [*flow.sequences]})] * stage.takes_sequences
    body = (
        mapping("inputs = ", {quoted(name): _input(flow, name, name) for name in flow.inputs}),
        literal(Made(f"features = {stage.network.__name__}", tuple(arguments), stage.arguments)),
        call("return keras.Model", given, outputs),
    )
    return function("model() -> keras.Model", f"Return a model of {' and '.join(flow.targets)}.", *body)


PACKAGES = ("tensorflow", "keras", "tensorflow-datasets")

_IMPORTS = {
    "Callable Iterable Iterator Mapping Sequence": "from collections.abc import {}",
    "Path": "from pathlib import Path",
    "Any": "from typing import Any",
    "": "",
    **{name: f"import {name}" for name in ("cv2", "google_crc32c", "keras")},
    "np": "import numpy as np",
    "pa": "import pyarrow as pa",
    "pc": "import pyarrow.compute as pc",
    "pyarrow": "import pyarrow.csv\nimport pyarrow.feather\nimport pyarrow.parquet",
    "simplejpeg": "import simplejpeg",
    "tf": "import tensorflow as tf",
    "tfds": "import tensorflow_datasets as tfds",
}
_AS_WRITTEN = """\
AS_WRITTEN = tf.data.Options()  # tf.data would make serial stages parallel and add others
AS_WRITTEN.experimental_optimization.apply_default_optimizations = False"""


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that a program needs."""
    return {package: version_of(package) for package in PACKAGES}


def ejected(plan: Plan, arguments: Sequence[str], packages: Mapping[str, str]) -> str:
    """Return the program that does what a run of `plan` does; `arguments` are those of the command that is shown.

    Raises `ConfigError` if no program can do it, such as on several devices, or with input from a service.
    """
    if faults := [*_refused(plan.spec)]:
        raise ConfigError(faults)
    plan.spec.require_one_host("a program trains on one host")
    own = [of for plugin in (plan.spec.fit.own_functions if plan.spec.fit else ()) for of in plugin.functions]
    own += with_called(plan.spec.model.network) if isinstance(plan.spec.model, Network) else ()
    known = of_data(plan.spec.dataset) | functions_of(plan) | {function.__name__: function for function in own}
    functions = complete(known, _functions(plan))
    runs = ["train()"] if plan.spec.learner else [*_seeded(plan), "for _ in train_dataset(passes=1):", "    pass"]
    text = "\n\n\n".join([*functions, "\n    ".join(['if __name__ == "__main__":', *runs])])
    used = {*names_in(text)}
    values = [constant(name, literal(value)) for name, value in _constants(plan).items() if name in used]
    top = "\n".join([*values, "", _AS_WRITTEN])
    return "\n\n".join([_header(plan, arguments, packages), _imports(f"{top}\n{text}"), f"{top}\n\n\n{text}\n"])


def _refused(spec: RunSpec) -> Iterator[Fault]:
    """Yield why a run has no program."""
    dataset, fit = spec.dataset, spec.fit
    if not dataset.printed:
        found, remedy = "whose class has no `printed`", "write its program by hand, from that of another dataset"
        yield Fault(Dataset.key("name"), f"{dataset.name}, {found}", "a dataset that programs can read", remedy)
    elif lacks := missing(dataset):
        found, remedy = f"{dataset.printed} without {', '.join(lacks)}", f"add {'them' if lacks[1:] else 'it'} to"
        expected = "all functions that programs need"
        yield Fault(Dataset.key("name"), found, expected, f"{remedy} {dataset.printed}")
    if isinstance(dataset, Rows) and not dataset.found.rows:
        others = f"run the command where they are, or {dataset.restore.partition(', or ')[2]}".removesuffix(", or ")
        expected = "rows, since a program has the fitted values of their columns"
        yield Fault(dataset.key(dataset.given_by), "no rows on this machine", expected, others)
    if dataset.urls:
        expected = "files on this machine in a standalone program"
        yield Fault(dataset.key(dataset.given_by), "URLs, whose files etlrun fetches", expected, "copy them here")
    apart = [name for name in dataset.sets if dataset.read_by(name) is not dataset]
    expected, remedy = "a split of its dataset in a standalone program", "leave the set out for the program"
    yield from (Fault(dataset.key_of(name), show(dataset.sets[name]), expected, remedy) for name in apart)
    if spec.load.service is not None:
        found, expected = "a service, whose servers a program would have to find", "null in a standalone program"
        remedy = "set load=shuffled, which reads the same examples in the same order"
        yield Fault(Service.path, found, expected, remedy, is_rule=True)
    if fit is not None and fit.devices != 1:
        expected = "1, since a program trains on one device, to the same losses within rounding"
        yield conflict(fit, "devices", expected, f"add {fit.key('devices')}=1")
    if spec.cache.keeps_features:
        remedy = "set cache=none, with which each pass computes them"
        yield conflict(spec.cache, "at", "a point before the base in a program, whose model has the base", remedy)
    if fit is not None and fit.mixed_precision == "auto":
        expected, key = "mixed_bfloat16, mixed_float16 or null in a program", fit.key("mixed_precision")
        yield conflict(fit, "mixed_precision", expected, f"add {key}=null, or the one that its runs note")


def _header(plan: Plan, arguments: Sequence[str], packages: Mapping[str, str]) -> str:
    spec, dataset = plan.spec, plan.spec.dataset.title
    title, promise = f"The input pipeline of {dataset}", "It reads the examples of the run, in the same order."
    if plan.spec.learner is not None:
        title = f"{spec.model.title} on {dataset}"
        promise = (
            "It trains on the examples of the run in the same order, and reaches its losses: on a CPU, bit for bit."
        )
    if any("deterministic" in remark for remark in plan.remarks):
        promise = "The order of its examples, and so every result, differs from run to run, as in etlrun."
    words = map(pasted, arguments)
    made_for = ", ".join(f"{package} {version}" for package, version in packages.items())
    text = [
        f"{title}: a run of etlrun {VERSION} as a standalone program.",
        "",
        "Generated by",
        "",
        " ".join(["    python -m etlrun config eject", *words]),
        "",
        f"from the plan {plan.fingerprint}, for {made_for}.",
        promise,
        "It does not cache on disk, measure, profile, keep checkpoints, resume, or explain broken data: etlrun does.",
        "",
    ]
    shown = ("".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line) for line in text)
    return '"""{}"""'.format("\n".join(shown).replace("\\", "\\\\").replace('"""', '\\"\\"\\"'))


def _imports(text: str) -> str:
    """Return the imports of the modules that `text` uses."""
    used = {*names_in(text)}
    lines = [f"import {name}{'.parse' * (name == 'urllib')}" for name in sorted(used & sys.stdlib_module_names)]
    for names, line in _IMPORTS.items():
        found = [name for name in names.split() if name in used]
        lines += [line.format(", ".join(found))] if found or not names else []
    return "\n".join(lines)


def _constants(plan: Plan) -> dict[str, Any]:
    """Return all constants that a program may need."""
    spec, called = plan.spec, [planned.stage.call() for stages in plan.pipelines.values() for planned in stages]
    found = {
        "SEED": spec.trainer.seed,
        "EPOCHS": spec.trainer.all_epochs,
        "CORES": Text("os.cpu_count() or 1"),
        **{name: value for call in called if call for name, value in call.constants.items()},
        "TRAIN_SPLIT": spec.dataset.split,
        "VALIDATION_SPLIT": spec.dataset.eval_split or "",
        "EVAL_SPLITS": {name: spec.dataset.splits[name] for name in spec.dataset.sets},
        "TARGET": spec.dataset.keys[spec.dataset.examples.target],
        "STORED": spec.dataset.stored,
        "SKIPS": spec.dataset.on_corrupt == "skip",
        **spec.dataset.constants,
        "BOUNDARIES": [*(spec.load.boundaries or ())],
        "BATCH_SIZES": [*sizes_of(spec.load)],
    }
    others = {name: value for name, value in of_data(spec.dataset).items() if name.isupper() and name not in found}
    return found | others


def _functions(plan: Plan) -> Iterator[str]:
    spec = plan.spec
    yield from pipeline(plan, "train")
    if plan.evaluation and spec.fit is not None:
        yield from pipeline(plan, "validation")
    if spec.learner is not None:
        stage: Any = spec.model
        yield _network(stage, plan) if isinstance(stage, Network) else image_model(stage, plan)
        yield fit(spec.learner, plan)
