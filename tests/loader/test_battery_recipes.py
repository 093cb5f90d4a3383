"""The battery over recipes that join any source, fields, augmentations, plan, workers and cache."""

from __future__ import annotations

import itertools

import battery
import battery_recipes
import pytest
from battery_recipes import SOURCES, make_of

RECIPES = {str(recipe): recipe for recipe in battery_recipes.every_pair(seed=20)}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return {name: open_source(tmp_path_factory.mktemp("source")) for name, open_source in SOURCES.items()}


@battery.over(RECIPES, one_in=80)
@pytest.mark.long
def test_battery(opened, tmp_path, case, check):
    recipe = RECIPES[case]
    check(make_of(recipe, opened[recipe.source], tmp_path))


def test_recipes_meet_in_every_pair():
    """Found by their own values, so that a choice that is added to an axis is met as well."""
    axes = {
        "source": battery_recipes.SOURCES,
        "fields": battery_recipes.FIELDS,
        "augment": battery_recipes.AUGMENTS,
        "plan": battery_recipes.PLANS,
        "workers": battery_recipes.WORKERS,
        "cache": battery_recipes.CACHES,
    }
    for (one, its), (other, others) in itertools.combinations(axes.items(), 2):
        met = {(getattr(recipe, one), getattr(recipe, other)) for recipe in RECIPES.values()}
        assert met == set(itertools.product(its, others))
