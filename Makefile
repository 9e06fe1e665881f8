# Everything is done through these commands; CI calls the same ones. `make` alone lists them.
PYTHON ?= python3
ARGS ?=
PART ?= compare
BIN := .venv/bin
PACKAGES := shared cloud desktop
PAIR := qwen2.5-coder-0.5b qwen2.5-coder-1.5b

.DEFAULT_GOAL := help
.PHONY: help setup demo test clients lint format bench economics soak docs lock map pages clean

help: ## list the commands
	@echo "Nexus: idle GPUs draft, a large model verifies. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS=\"…\" adds flags: make demo ARGS=\"--tiny --once\", make test ARGS=\"-k broker -x\""

setup: ## create .venv from the lock file (every command below does it first; at once when done)
	@$(PYTHON) tools/setup.py

demo: setup ## run verifier, gateway and one draft node here, and ask them something
	@$(BIN)/nexus demo $(ARGS)

test: setup ## run all tests, on a small real model too (fetches it first); not those marked pair or soak
	@$(BIN)/nexus models fetch smollm2-135m
	$(BIN)/pytest -m "not pair and not soak" $(ARGS)

clients: setup ## other people's clients against the real gateway, each in an environment of its own (ARGS="--only llm")
	@$(BIN)/nexus models fetch smollm2-135m
	@PYTHONPATH=tests/lib $(BIN)/python -m clients.run $(ARGS)

lint: setup ## ruff, mypy --strict, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) tools/setup.py tools/map.py tools/pages.py
	MYPYPATH=tests/lib $(BIN)/mypy bench
	$(BIN)/lint-imports

format: setup ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Nexus beside stock vLLM on the pair, some 45 min (ARGS=--quick: 8 min; PART=…: see bench/README.md)
	@$(BIN)/nexus models fetch smollm2-135m $(PAIR)
	@PYTHONPATH=tests/lib $(BIN)/python -m bench.$(PART) $(ARGS)

economics: setup ## compute what drafts cost and earn in a day, anew for docs/economics.md (some 9 min; ARGS=--quick: 3 min)
	@PYTHONPATH=tests/lib $(BIN)/python -m bench.economics $(ARGS)

soak: setup ## run the tests marked slow again and again, those of the Qwen pair too, in another order each time (ROUNDS=5)
	@$(BIN)/nexus models fetch smollm2-135m $(PAIR)
	@for round in $$(seq $${ROUNDS:-5}); do echo "round $$round"; $(BIN)/pytest -m "slow or pair or soak" -q $(ARGS) || exit 1; done

docs: setup ## build docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

lock: setup ## write the lock files anew from pyproject.toml (UPGRADE=1: newer versions)
	sh tools/lock.sh

map: setup ## write the tables of docs/map.md anew from the packages' docstrings
	$(BIN)/python tools/map.py --write

pages: setup ## write docs/api and the tables made from the OpenAPI document and the conformance cases anew
	$(BIN)/python tools/pages.py --write

clean: ## remove .venv and everything built (models in the user's cache stay)
	rm -rf .venv .nexus-setup.log build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(PACKAGES) tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
