"""Plans on this machine: with the data that is on it, and figures of its cores."""

from dataclasses import replace
from functools import partial

from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.sources.base import note_of_unused, on_disk, source_type
from etlrun.stages.dataset import Declared
from etlrun.stages.load import note_of_classes
from etlrun.system.errors import EtlrunError


def text_of(planned: Plan) -> str:
    """Return the text of a plan, whose figures are known, for this machine and the data on it."""
    known = on_disk(planned.spec.dataset).examples(planned.spec.dataset.split)
    return render.text_here(planned, None if known is None else known.encoded_bytes)


def with_figures(planned: Plan) -> Plan:
    """Return a plan that also notes unfit files and an unused split here, its classes if they matter, and fetches.

    Raises `EtlrunError` if the dataset is here, and does not have the splits.
    """
    dataset = planned.spec.dataset
    known, count = on_disk(dataset), partial(source_type(dataset).by_class, dataset, dataset.split)
    each = {name: known if (of := dataset.read_by(name)) is dataset else on_disk(of) for name in dataset.splits}
    splits = dataset.splits.items()
    refused = [error for name, split in splits if (error := each[name].refusal(split, dataset.key_of(name)))]
    if refused:
        raise EtlrunError([fault for error in refused for fault in error.faults])
    unused = note_of_unused(dataset, known.counts) if "validation" in planned.pipelines else None
    of_classes = note_of_classes(planned.spec.load, dataset.split, count)
    fetching = None
    if isinstance(dataset, Declared) and dataset.urls:
        from etlrun.sources.shards import note_of_fetching

        fetching = note_of_fetching(dataset)
    unfit = f"{known.unfit}; a run here would fail." if known.unfit else None
    found = filter(None, (unfit, unused, of_classes, fetching))
    return replace(planned, remarks=(*planned.remarks, *found))
