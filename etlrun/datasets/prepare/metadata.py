"""Metadata of a dataset, as TFDS reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow_datasets as tfds

from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.shards import Shard, data_bytes
from etlrun.sources.on_disk import CLASSES
from etlrun.stages.dataset import IMAGE, LABEL
from etlrun.system.errors import WorldError


def require_unknown(options: Options) -> None:
    """Refuse the name of a dataset that TFDS would download instead of reading this one."""
    if options.name in tfds.list_builders(with_community_datasets=False):
        raise WorldError(
            "--name",
            f"{options.name}, which is a dataset of TFDS",
            "a name of its own",
            f"choose another name, such as --name my_{options.name}",
        )


def write_metadata(
    options: Options, folder: Path, shards: Sequence[Shard], sizes: Mapping[str, int], classes: Sequence[str]
) -> None:
    """Write the features, the classes with their examples, and the splits of the shards to `folder`.

    `sizes` are the bytes of the files of the shards by name.
    """
    features = tfds.features.FeaturesDict(
        {IMAGE: tfds.features.Image(shape=(None, None, 3)), LABEL: tfds.features.ClassLabel(names=list(classes))}
    )
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}", dataset_name=options.name,
        filetype_suffix="tfrecord",
    )  # fmt: skip
    splits, by_class = [], {}
    for name in dict.fromkeys(shard.split for shard in shards):
        own = [shard for shard in shards if shard.split == name]
        counts = Counter(image.label for shard in own for image in shard.images)
        by_class[name] = {of: counts[label] for label, of in enumerate(classes)}
        splits.append(
            tfds.core.SplitInfo(
                name=name,
                shard_lengths=[len(shard.images) for shard in own],
                num_bytes=sum(data_bytes(sizes[shard.file], len(shard.images)) for shard in own),
                filename_template=template.replace(split=name),
            )
        )
    tfds.core.MetadataDict({CLASSES: by_class}).save_metadata(folder)
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=splits,
        version=options.version,
        check_data=False,
        description="Labelled images, prepared by etlrun.",
        supervised_keys=(IMAGE, LABEL),
    )
