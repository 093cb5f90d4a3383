"""Fields of a recipe that Python decodes: texts, arrays, keys and strings."""

from __future__ import annotations

from headrace.fields import Array, Key, Raw
from headrace.loader.cache import EpochCache
from headrace.loader.decoding.arrays import ArrayContent, FieldContent, KeyContent
from headrace.loader.decoding.texts import PackedTextContent, RawTextContent, TextContent
from headrace.loader.recipe import Recipe
from headrace.loader.resolving import column_of_paths
from headrace.loader.stats import StageMeter


def contents_of(recipe: Recipe, cache: EpochCache | None, meter: StageMeter) -> tuple[FieldContent, ...]:
    """Return the recipe's fields that Python makes, for one pass. `meter` counts the cost of encoding texts."""
    raws = {name: number for number, (name, _, _) in enumerate(recipe.raws)}
    texts = [
        (PackedTextContent if text.name == recipe.packed else TextContent)(
            text, raws.get(text.name), meter, None if cache is None else cache.tokens(text)
        )
        for text in recipe.texts
    ]
    arrays = [
        ArrayContent(
            dataset=recipe.dataset,
            name=name,
            field=field,
            column=name if field.source is None else field.source,
            raw=raws.get(name),
            limits=recipe.limits,
        )
        for name, field in recipe.fields.items()
        if isinstance(field, Array)
    ]
    keys = [
        KeyContent(
            dataset=recipe.dataset,
            name=name,
            what=field.what,
            column=column_of_paths(name, field, recipe.images) if field.what == "path" else None,
        )
        for name, field in recipe.fields.items()
        if isinstance(field, Key)
    ]
    strings = [
        RawTextContent(dataset=recipe.dataset, name=name, column=column, raw=raws[name])
        for name, field, column in recipe.raws
        if isinstance(field, Raw) and field.text
    ]
    return (*texts, *arrays, *keys, *strings)
