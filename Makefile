# `make run` and `make test` are all a fresh machine needs; ARGS="..." passes options on.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
EXTRAS := dev,bench,spark,broker,docs

.PHONY: run test test-spark test-others test-slow sim mobility chaos mutants check docs pictures console-pictures bench house fuzz setup clean

run: $(READY)  ## the demo
	$(BIN)/weft demo $(ARGS)

# Without ARGS the tests of Spark, which share one JVM, run beside the others; with ARGS all run as one.
# Bytecode of the tests is kept even where Python is told to write none, or every run rewrites all their assertions.
test test-spark test-others test-slow: export PYTHONDONTWRITEBYTECODE =
test: $(READY)  ## the tests: unit, laws, documentation
ifdef ARGS
	$(BIN)/pytest -n 2 --dist worksteal $(ARGS)
else
	$(MAKE) --no-print-directory -k -j 2 test-spark test-others
endif

SPARK_TESTS := tests/spark tests/lab/demo/test_pipeline_chapter.py tests/lab/bench/test_spark_bench.py

test-spark: $(READY)  ## the part of `make test` that needs Spark
	@mkdir -p build
	@$(BIN)/pytest -o cache_dir=.pytest_cache/spark $(SPARK_TESTS) > build/test-spark.txt 2>&1; \
	  status=$$?; cat build/test-spark.txt; exit $$status

test-others: $(READY)  ## the rest of `make test`
	$(BIN)/pytest -n 2 --dist worksteal $(SPARK_TESTS:%=--ignore=%)

test-slow: $(READY)  ## the longer laws, with many more examples
	WEFT_EXAMPLES=10 $(BIN)/pytest -n 2 --dist worksteal -m "slow or not slow" $(ARGS)

check: $(READY)  ## style, types, layers, fences, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tools
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_fences.py
	$(MAKE) docs

docs: $(READY)  ## the documentation as a site: build/docs/index.html
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	$(BIN)/python docs/offline.py build/docs

pictures: $(READY)  ## draw the pictures of the documentation again
	PYTHONPATH=docs $(BIN)/python -m pictures.draw

console-pictures: $(READY)  ## take the pictures of the web console again, with Chromium
	$(BIN)/python tools/console_pictures.py $(ARGS)

bench: $(READY)  ## ratios and rates: make bench NAME=match ARGS="--quick"
	$(BIN)/weft bench $(or $(NAME),language) $(ARGS)

house: $(READY)  ## how one event walks through the messaging code, and what is there twice: make house ARGS=--list
	$(BIN)/python tools/house.py $(ARGS)

fuzz: $(READY)  ## coverage-guided fuzzing of everything that is read, each target for so long: make fuzz SECONDS_=300
	$(BIN)/python -m pip install -q 'atheris>=2.3'
	$(BIN)/python fuzz/language.py -max_total_time=$(or $(SECONDS_),60) $(ARGS)
	$(BIN)/python fuzz/routing.py -max_total_time=$(or $(SECONDS_),60) $(ARGS)
	$(BIN)/python fuzz/broker.py -max_total_time=$(or $(SECONDS_),60) $(ARGS)
	$(BIN)/python fuzz/cost.py -max_total_time=$(or $(SECONDS_),60) $(ARGS)

sim: $(READY)  ## one broker, then networks of brokers under simulated faults: make sim SEEDS=1000 FIRST=0
	$(BIN)/weft sim faults --seed $(or $(FIRST),0) --seeds $(or $(SEEDS),1000) $(ARGS)
	$(BIN)/weft sim faults --network --seed $(or $(FIRST),0) --seeds $(or $(SEEDS),1000) $(ARGS)

mobility: $(READY)  ## 10,000 moves with every protocol that hands clients over: make mobility SEEDS=100 FIRST=1
	for who in subscribers publishers both; do $(BIN)/weft sim mobility --busy --events 5 --types 2 --routers 6 \
	  --moves 100 --seed $(or $(FIRST),1) --seeds $(or $(SEEDS),100) --movers $$who $(ARGS) || exit 1; done

chaos: $(READY)  ## three brokers with TLS and load, killed at random: make chaos KILLS=50 SEED=1; a ring: RING=1; clients that move: MOVES=1
ifdef RING
	PYTHONPATH=tests $(BIN)/python tests/server/ring_chaos.py --seconds $(or $(SECONDS_),600) --seed $(or $(SEED),1) $(ARGS)
else ifdef MOVES
	PYTHONPATH=tests $(BIN)/python tests/server/moving_chaos.py --kills $(or $(KILLS),50) --seed $(or $(SEED),1) $(ARGS)
else
	PYTHONPATH=tests $(BIN)/python tests/server/chaos.py --kills $(or $(KILLS),50) --seed $(or $(SEED),1) $(ARGS)
endif

mutants: $(READY)  ## faults planted into brokers, links, clients and nodes of a ring, each of which the simulation must notice
	$(BIN)/pytest -n 2 -m "slow or not slow" tests/lab/test_mutants.py tests/lab/test_ring_faults.py $(ARGS)

setup: $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

# uv is many times faster than pip; where it is not available, pip does the same, and compiles bytecode by itself.
# Bytecode and kernels are compiled here, so that no later run has to: in containers nobody may write them later.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'weft needs Python 3.11 or newer with venv: install python3-venv, or make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	{ $(BIN)/pip install -q --disable-pip-version-check uv && \
	  $(BIN)/uv pip install -q --compile-bytecode -p $(BIN)/python -e '.[$(EXTRAS)]'; } || \
	  $(BIN)/pip install --disable-pip-version-check -e '.[$(EXTRAS)]'
	@$(BIN)/python -m compileall -q src
	@echo 'compiling the kernels, once: this takes a minute or two'
	-$(BIN)/python -m weft.warm
	@touch $@
