"""Fields that Python makes, each with what it is made of."""

from __future__ import annotations

from headrace.feed.contents import Content
from headrace.feed.packed_text import PackedTextContent
from headrace.fields import Array
from headrace.fields.tokens import ResolvedText
from headrace.loader.decoding.arrays import ArrayContent
from headrace.loader.decoding.texts import TextContent, TextMeter
from headrace.loader.recipe import Recipe


def contents_of(recipe: Recipe, meter: TextMeter) -> tuple[Content, ...]:
    """Those of a recipe, for one pass; `meter` counts what texts cost."""
    raws = {name: number for number, (name, _, _) in enumerate(recipe.raws)}
    texts = [_text_of(recipe, text, raws.get(text.name), meter) for text in recipe.texts]
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
    return (*texts, *arrays)


def _text_of(recipe: Recipe, text: ResolvedText, raw: int | None, meter: TextMeter) -> TextContent:
    kind = PackedTextContent if text.name == recipe.packed else TextContent
    return kind(text, raw, meter, None if recipe.cache is None else recipe.cache.tokens(text))
