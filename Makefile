# demo: the main job, from nothing to its table. test: everything CI checks.
# Both install what is missing first. The longer checks have targets of their own.

CARGO ?= cargo
BIN = $(or $(CARGO_TARGET_DIR),target)/release/numaherd

.PHONY: demo test deps build unit whole lint lab-test compare slides undo-test phases-test rest-test kernel-test topology-test \
    fidelity-test speed random-loads tools-test numad advise-test latency-test conformance fuzz pft lookups migration \
    dist results swarm tails manual clean

demo: build
	$(BIN) compare numa02 --quick --runs 1

# Packages, and a kernel in the cache folder; does nothing where all is there.
deps:
	scripts/install-deps
	scripts/fetch-kernel

build: deps
	$(CARGO) build --release --locked

test: lint unit lab-test
	@scripts/summarise-tests target/test-log

lint: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings

# All that tests run and are, in one go: their dependencies ask for more of some crates than the program does alone, so
# that after `build` these, and all that is made of them, would be compiled once more for each of the two below.
whole: deps
	$(CARGO) build --release --locked --workspace --lib --bins --examples --tests

unit: whole
	mkdir -p target/test-log
	scripts/log-tests target/test-log/unit $(CARGO) test --release --locked --workspace

# With a real kernel in the emulated machine; takes minutes.
lab-test: whole
	mkdir -p target/test-log
	scripts/log-tests target/test-log/lab $(CARGO) test --release --locked --workspace --test lab -- --ignored --test-threads=1 --skip the_machine_is --skip promise:: --skip latency:: --skip rest:: --skip the_bind_of_phases

# The comparisons behind the README's figures, three rounds each; an hour and a half.
compare: build
	$(BIN) compare numa02 --html target/numa02.html
	$(BIN) compare numa01 --html target/numa01.html
	$(BIN) compare numa01 --start placed --placements off,kernel,bind,herd

# The tables of the AutoNUMA slides on the emulated machine modelled on theirs (docs/lab.md); twenty
# minutes.
SLIDES = numa02 numa01 numa01_thread_alloc
slides: build
	for workload in $(SLIDES); do $(BIN) compare $$workload --on lab:autonuma --quick --dilation 5 \
	    --placements bind,inverse,off || exit 1; done

# Our BPF on every kernel: Debian's 6.1 and 6.12, and one with sched_ext, which is built once (ten
# minutes on two idle cores).
kernel-test: build
	scripts/fetch-kernel 6.1
	scripts/fetch-kernel 6.12
	scripts/build-kernel 6.12
	$(CARGO) build --release --locked --package numaherd-bpf --example watch_faults
	KERNELS="6.1 6.12 sched-ext" $(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 hinting_faults

# Boots every machine and captured tree that can be emulated; some ten minutes.
topology-test: build
	TOPOLOGIES=all $(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 odd_machines

# Measures emulated machines from inside against their files; five minutes, on a quiet host
# (docs/lab.md), which is why it is not part of make test.
fidelity-test: build
	MACHINES=all $(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 the_machine_is

# What the emulation carries with every access observed, in instructions a second on two cores.
speed: build
	scripts/measure-speed

# Herd beside off and the kernel on a hundred random machines and loads, simulated; six minutes.
# WITHOUT=PART: without that part of it; LOADS=N: so many; SEEDS=N: so many runs of each, three without.
LOADS ?= 100
random-loads: deps
	LOADS=$(LOADS) $(CARGO) test --release --locked --package numaherd --bin numaherd random_machines -- --nocapture

# The lab's workloads with many seeds, simulated: what one run in ten or in forty is like.
tails: SEEDS ?= 40
tails: deps
	SEEDS=$(SEEDS) $(CARGO) test --release --locked --package numaherd --bin numaherd tails -- --nocapture

# Other people's tools in the lab, unmodified.
tools-test: build
	scripts/install-deps linux-perf numad stress-ng
	$(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 tools::

# herd beside Debian's numad, where numad acts; three quarters of an hour.
numad: build
	scripts/install-deps numad
	scripts/compare-numad $(BIN)

# What advise promises beside what following it brings; half an hour. CASES=jbb-like: only those.
advise-test: build
	$(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 promise::

# How long requests take while balance converges; five minutes. MACHINE=FILE: on that machine.
latency-test: build
	$(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 latency::

# What balance costs once there is nothing left to do, and that it does nothing then; fifteen minutes. MACHINE=FILE: on that.
rest-test: build
	$(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 rest::

# That `phases` under bind is as local, and as much faster than under inverse, as docs/workloads.md says; two minutes.
phases-test: build
	$(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 the_bind_of_phases

# Kills the balancer at random moments, fifty times.
undo-test: build
	ROUNDS=50 $(CARGO) test --release --locked --package numaherd --test lab -- --ignored --nocapture --test-threads=1 killed

# numactl's own tests with the original and with ours, generated command lines, and the policy
# model against the kernel, in two emulated machines; a quarter of an hour. docs/conformance.md.
conformance: build
	$(CARGO) build --release --locked --package numaherd-linux --example conform
	scripts/conformance $(BIN) $(dir $(BIN))examples/conform target/conformance

# The parsers of memory policies, for ten minutes, and what reached new code into fuzz/corpus.txt,
# which make test runs; needs nightly Rust and cargo-fuzz.
fuzz:
	$(CARGO) run --locked --quiet --package numaherd-linux --example corpus -- unpack fuzz/corpus.txt fuzz/corpus/policies
	cd fuzz && $(CARGO) +nightly fuzz run policies -- -max_total_time=600 -max_len=300
	cd fuzz && $(CARGO) +nightly fuzz cmin policies
	$(CARGO) run --locked --quiet --package numaherd-linux --example corpus -- pack fuzz/corpus/policies fuzz/corpus.txt

# The page fault test's tables and plots, here and in the emulated machine, held to the kernel's own
# count and perf's; some ten minutes.
pft: build
	scripts/install-deps linux-perf
	scripts/page-faults $(BIN) target/pft

# Policy look-ups per second, with and without locks and references.
lookups:
	$(CARGO) bench --locked --package numaherd-mempolicy --bench lookups

# How fast memory moves between nodes with more and more threads, and where they wait, on the emulated 2x4; seven
# minutes (docs/results/migration.md). The page with pictures is then target/migration.html.
MIB = 8
migration: build
	mkdir -p target
	$(BIN) lab run --machine 2x4 --timeout 3600 -- \
	    $(BIN) bench migration -m $(MIB)m --callgraph --html target/migration.html

# docs/results.md, from comparisons that are measured first where docs/results/runs has none: many hours, in pieces
# with MACHINES=2x4 WORKLOADS="numa01 uneven"; with MORE=1 further rounds of what there is.
results: build
	scripts/results $(BIN) docs/results/runs
	$(CARGO) run --release --locked --quiet --package numaherd-report --example results docs/results/runs > target/results.md
	mv target/results.md docs/results.md

# One archive for a production host: no Rust, QEMU or network needed there.
dist: deps
	scripts/dist $(CARGO) target/static target/dist

# Made-up kernels in which everything goes wrong: some three hundred thousand faults, in a few minutes.
# SEED=N: from that machine on.
swarm:
	SWARM=20000 $(CARGO) test --release --locked --package numaherd --test swarm -- --nocapture

# Man pages and shell completions.
manual: build
	$(BIN) manual target/manual

clean:
	$(CARGO) clean
