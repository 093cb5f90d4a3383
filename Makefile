# What people and CI run. Every target sets up what it needs, from nothing; a second run starts in seconds.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
NATIVE := $(shell find core -type f) CMakeLists.txt pyproject.toml
CPP := $(shell find core -name '*.cpp' -o -name '*.hpp')
PHOTOS ?=
TORCH ?= 2.15.0
SECONDS ?= 1200
PEERS_VENV ?= .cache/peers
PEERS_PHOTOS ?= .cache/photos
MEASURE ?= throughput
ROUNDS ?= 3
# Tests start hundreds of Python processes: compiling the package in each of them takes a minute.
export PYTHONDONTWRITEBYTECODE :=
DEMO_PHOTOS = $(if $(PHOTOS),--photos "$(PHOTOS)")

.PHONY: help demo test test-long test-torch check format bench bench-peers bench-recipes gpu gpu-rehearsal fuzz build wheel wheel-test docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build $(VENV)/.photographs ## photographs become batches, beside torch's DataLoader (PHOTOS=folder for your own)
	$(BIN)/headrace demo $(DEMO_PHOTOS)

# Tests often wait for processes that they start: there is one worker more than cores. Each collects the files that it
# runs, and pytest counts files as tests: it shows no percentage.
test: build ## the tests, less those marked long
	$(BIN)/python -m pytest -m "not long and not alone" --max-worker-restart=0 --numprocesses $$(( $$(nproc) + 1 )) --maxprocesses 4 --dist loadfile --no-loadscope-reorder --whole-files -o console_output_style=classic
	$(BIN)/python -m pytest -m "not long and alone" $$(grep -rl --include='*.py' "mark\.alone" tests | sort)

test-long: build ## every test, those that reach the core once more under sanitizers, the queue under load
	$(BIN)/python -m pytest
	PYTHON=$(BIN)/python scripts/sanitized.sh
	scripts/stress.sh 100
	$(MAKE) gpu-rehearsal

test-torch: build ## the doctor's hooks and the drop-ins on another torch (TORCH=2.15.0), several GB
	scripts/test_torch.sh $(TORCH)

check: build ## lint, format, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(CPP)

format: $(VENV)/.tools ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

bench: build .cache/photos ## images/s beside torch's DataLoader, for uint8 and float32
	$(BIN)/headrace bench .cache/photos --dtype uint8
	$(BIN)/headrace bench .cache/photos --dtype float32

wheel: $(VENV)/.tools ## a wheel that carries its codecs, in dist/ (CODEC_SOURCES=folder with their archives, offline)
	scripts/build_wheel.sh $(BIN)/python

wheel-test: $(VENV)/.tools ## that wheel, and the tests on it where neither compiler nor codecs are
	wheel=$$(scripts/build_wheel.sh $(BIN)/python) && PYTHON=$(BIN)/python scripts/test_wheel.sh "$$wheel"

fuzz: build ## feed made-up bytes to every fuzz target, for SECONDS= each (default 1,200), from where it was
	PYTHON=$(BIN)/python scripts/fuzz.sh $(SECONDS)

bench-peers: build $(PEERS_PHOTOS) ## beside nine other loaders, several GB (ROUNDS=3 MEASURE="throughput start-up")
	PYTHON=$(BIN)/python benchmarks/peers/install.sh $(PEERS_VENV)
	for measure in $(MEASURE); do \
	    $(BIN)/python benchmarks/peers/run.py $$measure $(PEERS_PHOTOS) --environment $(PEERS_VENV) \
	        --rounds $(ROUNDS) || exit; \
	done

bench-recipes: build $(PEERS_PHOTOS) ## training recipes beside torchvision v2, DALI and albumentations (ROUNDS=3)
	PYTHON=$(BIN)/python benchmarks/peers/install.sh $(PEERS_VENV)
	$(BIN)/python benchmarks/recipes.py $(PEERS_PHOTOS) --environment $(PEERS_VENV) --rounds $(ROUNDS)

gpu: build ## every CUDA test and benchmark, into docs/benchmarks/gpu.md; without CUDA, what it would run
	$(BIN)/python benchmarks/gpu.py

gpu-rehearsal: build .cache/photos ## what of `make gpu` runs without CUDA: streams by a double, decoding on the CPU
	$(BIN)/python benchmarks/gpu.py --rehearse

docs: .cache/site/.tools ## the documentation as a site, in build/site; a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 .cache/site/bin/mkdocs build --strict

build: $(VENV)/.package ## the environment and the package, editable

clean: ## remove what the targets above have made
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# torch goes first, and alone, so that nothing else pulls another one in.
$(VENV)/.tools: constraints.txt pyproject.toml scripts/system.sh scripts/requirements.py
	python=$$(scripts/system.sh) && "$$python" -m venv $(VENV)
	$(PIP) torch
	$(PIP) $$($(BIN)/python scripts/requirements.py dev)
	touch $@

$(VENV)/.package: $(VENV)/.tools $(NATIVE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-build-isolation --no-deps --editable .
	touch $@

# Only its bundled photographs are used, so its dependencies stay out. Without it the demo draws its own images.
$(VENV)/.photographs: $(VENV)/.tools
	if $(PIP) --no-deps scikit-image; then touch $@; fi

# In an environment of its own: the site needs neither the package nor a compiler.
.cache/site/.tools: scripts/site_requirements.txt
	$${PYTHON:-python3} -m venv .cache/site
	.cache/site/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.cache/photos: | build $(VENV)/.photographs
	$(BIN)/python benchmarks/make_photos.py $@ $(DEMO_PHOTOS)
