# One definition of every check: people, .ci/run and the public workflows all come through here.
# Each target is a script in scripts/, which shows the commands that it runs.
.DEFAULT_GOAL := help
.PHONY: help bench wheel format lint test test-rust test-python test-all clean

help: ## Show this list
	@echo 'make TARGET            (make -n TARGET shows the script behind it)'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "  %-13s %s\n", $$1, $$2 }'
	@echo 'Variables: PYTHON=python3.13  LIVE=1  ARGS="semaphore --threads 1,2"  STAGES="models sdist"  FORCE=1'

bench: ## From a fresh clone to a table of measured locks (LIVE=1: watch their delays; ARGS=: options of ticketlock bench)
	@bash scripts/bench.sh $(ARGS) $(if $(filter-out 0,$(LIVE)),--live)

wheel: ## Build the release wheel into dist/ unless it is up to date
	@bash scripts/wheel.sh

format: ## Rewrite all sources in the project's format
	@bash scripts/format.sh

lint: ## Format, clippy, rustdoc, ruff, mypy; changes nothing
	@bash scripts/lint.sh

test-rust: ## Tests of the Rust crates
	@bash scripts/test-rust.sh $(ARGS)

test-python: ## Build and install the wheel, run the Python tests and stubtest against it (ARGS=: options of pytest)
	@bash scripts/test-python.sh $(ARGS)

test: ## All that needs no root and no other interpreter: lint, test-rust, test-python
	@bash scripts/lint.sh
	@bash scripts/test-rust.sh
	@bash scripts/test-python.sh

test-all: test ## test, then every stage: models, other interpreters, benchmarks, sdist, workflows (STAGES=: only those)
	@bash scripts/run-stages.sh $(STAGES)

clean: ## Remove what was built here (not the cache folder)
	rm -rf target dist .venv
