# Everything that one types here. `make demo` and `make test` set themselves up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUNS ?= runs
ROOT = # of the text, both for scripts.wmt19 and for nmt-train; not from the environment
RECIPE ?=
# these only print, or make a part of the text: then nothing is trained
SHOW = $(filter --list --dry-run --help -h --version download corpus tests,$(RECIPE))
# it would prepare one directory, and train on another
REFUSED = $(if $(filter --root%,$(RECIPE)),$(error give ROOT=DIR))
TRAIN ?=
PEERS ?= data/peers
BENCH ?=

.PHONY: help install demo wmt19-deen wmt19-zhen test check slow oracles bench docs lint wheel clean

help: ## list all targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/installed ## all commands and what tests need, in .venv; then: . .venv/bin/activate

demo: $(VENV)/installed ## train absolute and relative on the embedded corpus, compare by length
	$(BIN)/nmt-train -m experiment=demo encoding=absolute,relative runs=$(RUNS)/demo
	$(BIN)/nmt-evaluate $(RUNS)/demo/toy/absolute-seed1 $(RUNS)/demo/toy/relative-seed1 --bounds 25,50,75 \
	  -o $(RUNS)/demo/comparison.json -o $(RUNS)/demo/comparison.html -o $(RUNS)/demo/comparison.png

wmt19-deen: $(VENV)/installed ## German-English of the paper, from downloads to Tables 1 to 3; ROOT=DIR RECIPE="arguments of scripts.wmt19" TRAIN="of nmt-train"
	$(REFUSED)$(BIN)/python -m scripts.wmt19 deen $(ROOT:%=--root %) $(RECIPE)
	$(if $(SHOW),,set -e; for table in table1 table2 table3; do \
	  $(BIN)/nmt-train experiment=$$table scale=wmt19 run=R1,R2 seed=1 runs=$(RUNS) $(ROOT:%=data.root=%) $(TRAIN); done)

wmt19-zhen: $(VENV)/installed ## Chinese-English, likewise
	$(REFUSED)$(BIN)/python -m scripts.wmt19 zhen $(ROOT:%=--root %) $(RECIPE)
	$(if $(SHOW),,$(BIN)/nmt-train experiment=table1 scale=wmt19 run=R9,R10 seed=1 runs=$(RUNS) $(ROOT:%=data.root=%) $(TRAIN))

test: export PYTHONDONTWRITEBYTECODE = # else each process that a test starts compiles all anew
test: $(VENV)/installed ## the fast tests, as CI runs them
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

slow: $(VENV)/installed ## all tests, fast and slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "slow or not slow"

oracles: $(VENV)/installed ## compare encodings with other packages
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.encodings.oracles

bench: $(VENV)/installed ## how fast training, decoding and preparation are, compared with other toolkits; BENCH="arguments"
	-$(BIN)/python -m scripts.bench peers $(PEERS)
	$(BIN)/python -m scripts.bench --peers $(PEERS) $(BENCH)

docs: $(VENV)/installed ## all pages as a site, site/index.html
	$(BIN)/python -m sphinx -W -q docs site

lint: $(VENV)/installed ## ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

check: lint test ## ruff, mypy and the fast tests; every commit passes it

wheel: $(VENV)/installed ## build a wheel into dist/
	$(BIN)/python -m build --wheel

clean: ## remove what was built here, but no data and no runs
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache

# One virtual environment for all targets, made anew when the requirements change.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
