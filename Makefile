# Everything a person needs, on a fresh Debian 12 with nothing but make (and git, to have got here).
#
#   make demo    a make-believe cluster, the server and the console; the address is printed
#   make test    every test, on real Slurm, PostgreSQL and Chromium from Debian's packages
#   make check   what CI runs: format, lint, types, arrows, tests, docs
#   make docs    the documentation as web pages, in site/
#
# `make demo ARGS="--nodes 40 --speed 120"` hands options on. A second run of anything is instant.
MAKEFLAGS += --no-print-directory --no-builtin-rules
SHELL := /bin/sh
PY := .venv/bin/python
CONSOLE := $(wildcard package.json package-lock.json hatch_build.py) \
           $(shell find src/komainu/console/static -type f -not -path '*/bundle/*' 2>/dev/null)
ARGS ?=
PYTEST_ARGS ?=

.PHONY: setup demo test check docs clean packages
.DEFAULT_GOAL := setup

setup: .venv/.ready

.venv/.ready: pyproject.toml uv.lock .ci/setup $(CONSOLE)
	@sh .ci/setup

demo: .venv/.ready
	@exec .venv/bin/komainu demo $(ARGS)

packages: tests/beds/debian-packages.txt
	@sh .ci/debian-packages tests/beds/debian-packages.txt

test: .venv/.ready packages
	@$(PY) -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

check:
	@.ci/run

docs: .venv/.ready
	@$(PY) -m tests.reference
	@.venv/bin/zensical build --clean

clean:
	rm -rf .venv .boot site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
	  .hypothesis node_modules src/komainu/console/static/bundle
