# The targets need Go and nothing else. The tools that they run are pinned in
# tools/linters/go.mod and built on first use; `race` alone needs a C compiler.

GO       ?= go
PYTHON   ?= python3
SHELL    := bash
TOOL     := $(GO) tool -modfile=tools/linters/go.mod
# A number of inputs, or a time like 1m. A time can end with the error "context
# deadline exceeded" on a busy machine, whatever was found.
FUZZTIME ?= 20000x

# What the CUDA build needs beyond a C compiler is in the tree: the header of the
# driver and an empty library in place of the driver's.
CUDA_ENV := CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations -I$(CURDIR)/internal/cudalib/include" CGO_LDFLAGS="-Wl,--as-needed"
CUDA_LIB := ./internal/cudalib ./internal/nvmllib ./tools/fakecuda ./profiler/device/... ./profiler/replay
CUDA_PKG := $(CUDA_LIB) ./cmd/... ./cli ./tools/gpucheck
# Tests of the command line that drive a device: those with the tag. The others
# are the plain build's.
CUDA_RUN  = '^($(shell grep -l '^//go:build cuda' cli/*_test.go | xargs grep -oh '^func Test[[:alnum:]]*' | cut -c6- | paste -sd '|'))$$'
# Wheels from PyPI that targets use, pinned by their hashes.
WHEELS := .cache/cuda

.PHONY: all build static cuda test test-cuda test-slurm gpu-check gpu-check-build gpu-session race lint lines python-lint vulncheck fmt record-check run-check run-alone without-check allocator-check guarantee evidence bench fuzz fuzz-nightly properties nightly golden docs pictures time-picture cover kernels kernels-check cuda-header stubs stubs-check stubs-emulated notices wheel wheels wheel-check web site dist release clean

all: build lint test

# NVIDIA's libraries are loaded at run time, through cgo, and there are none for other C
# libraries than glibc. Without a compiler for it the binary plans and simulates, and says so.
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
GLIBC = $(if $(findstring musl,$(MACHINE)),,$(findstring linux,$(MACHINE)))

# Without DWARF and the symbol table, which only debuggers read, the binary is a sixth smaller.
build: $(if $(GLIBC),cuda,static) ## the vprof binary; on Linux with a C compiler, one that drives NVIDIA GPUs

static: ## the vprof binary for any Linux; it plans and simulates, without GPUs
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags=-s -o vprof ./cmd/vprof

cuda: ## the vprof binary that drives NVIDIA GPUs; needs a C compiler, no CUDA
	$(CUDA_ENV) $(GO) build -trimpath -ldflags=-s -tags cuda -o vprof ./cmd/vprof

test: ## all tests, those over large corpora on a sample; VPROF_TESTS=all runs the whole corpora, as CI does
	$(GO) test ./...

# Packages that start goroutines or lock, in code or in tests: elsewhere the race detector has nothing to see. In a
# browser's tests the browser takes the time, and the code that they start is another process's.
RACE = $(shell grep -rlE --include='*.go' '^[[:space:]]*go [a-z]|errgroup|sync\.(WaitGroup|Mutex|RWMutex)|"sync/atomic"|progress\.Each' \
	*.go bench cli internal kernels models profiler tools | xargs -n1 dirname | sort -u | grep -v -e tools/headless -e tools/web | sed 's|^|./|')

race: ## tests of packages with several goroutines under the race detector, those of many cases on a sample
	CGO_ENABLED=1 $(GO) test -race -short -skip '^Example' $(RACE)

# The race detector sees what the tag adds: `race` has the rest. Of the command
# line those tests run under it in which more than one goroutine works, as a
# signal or a monitor makes it; the others are one goroutine over the same code.
CUDA_RACE := ./internal/cudalib ./internal/nvmllib ./profiler/device/cuda ./profiler/device/nvml
CUDA_RACE_RUN := '^Test(AnInterrupt|Monitor|Burst|FitAndSmokeGive|TheFirstGPU|MeasuredOn)'

test-cuda: ## the CUDA build against a driver without a GPU, also under the race detector
	$(CUDA_ENV) $(GO) vet -tags cuda $(CUDA_PKG)
	$(CUDA_ENV) $(GO) test -tags cuda $(CUDA_LIB) ./tools/gpucheck
	$(CUDA_ENV) $(GO) test -tags cuda -run $(CUDA_RUN) ./cli
	$(CUDA_ENV) $(GO) test -race -short -tags cuda $(CUDA_RACE)
	$(CUDA_ENV) $(GO) test -race -short -tags cuda -run $(CUDA_RACE_RUN) ./cli

test-slurm: ## a fleet on Slurm as Debian packages it, with a driver without GPUs; needs root, installs what it needs
	{ command -v slurmctld && command -v munged; } >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends slurm-wlm munge; }
	$(CUDA_ENV) $(GO) test -count=1 -timeout 15m -tags 'cuda slurm' ./bench/fleet/slurm

# What gpu-check runs; on a machine that has only the driver, carry this folder
# there and run gpucheck in it.
gpu-check-build: ## the binaries of gpu-check, in bin/gpu
	mkdir -p bin/gpu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags=-s -o bin/gpu/gpucheck ./tools/gpucheck
	$(CUDA_ENV) $(GO) build -trimpath -ldflags=-s -tags cuda -o bin/gpu/vprof ./cmd/vprof
	$(CUDA_ENV) $(GO) test -c -trimpath -ldflags=-s -tags cuda -o bin/gpu/cuda.test ./profiler/device/cuda
	mkdir -p bin/gpu/tools/record bin/gpu/models/capture
	cp tools/record/*.py bin/gpu/tools/record && cp models/capture/*.py bin/gpu/models/capture

WITH_TORCH ?=
gpu-check: gpu-check-build ## all checks that need a GPU; results in a folder of bin/gpu-check. WITH_TORCH=python also compares vprof with PyTorch
	bin/gpu/gpucheck $(if $(WITH_TORCH),--with-torch $(WITH_TORCH)) bin/gpu-check/$$(date -u +%Y%m%dT%H%M%SZ)

gpu-session: gpu-check-build ## the same and more in a quarter of an hour, with a limit for each part; WITH_TORCH as above
	python3 tools/evidence/session.py $(if $(WITH_TORCH),--python $(WITH_TORCH)) --out bin/gpu-session/$$(date -u +%Y%m%dT%H%M%SZ)

record-check: ## the Python of tools/, of vprof capture and of vprof run; needs a PYTHON with PyTorch, no GPU
	$(PYTHON) -m unittest discover -s models/capture -p '*_test.py'
	$(PYTHON) -m unittest discover -s tools/record -p '*_test.py'
	$(PYTHON) -m unittest discover -s tools/evidence -p '*_test.py'
	$(PYTHON) -m unittest discover -s bench/experiment/script -p '*_test.py'

# The version of a wheel: that of the tag, or of what came after it.
WHEEL_VERSION = $(shell git describe --tags --match 'v*' 2>/dev/null | sed -E 's/^v//; s/-([0-9]+)-g.*/.dev\1/' | grep . || echo 0.dev0)
WHEEL = VPROF_VERSION=$(WHEEL_VERSION) $(PYTHON) -m pip wheel -q --no-deps -w dist ./python

notices: ## .cache/THIRD_PARTY_NOTICES: the licenses of linked modules
	mkdir -p .cache && tools/notices.sh > .cache/THIRD_PARTY_NOTICES

# On Linux, wheels and archives have the CUDA build for glibc 2.17 (manylinux2014), by zig, which is a C compiler for both
# processors and comes as a wheel for x86-64. netgo and osusergo: glibc's resolver is newer than that. nethttpomithttp2: what
# is fetched is a few files, for which HTTP/1.1 serves.
ZIG := $(WHEELS)/stubs/compiler/ziglang/zig
ZIG_amd64 := x86_64
ZIG_arm64 := aarch64
NOTICES := python/LICENSE python/THIRD_PARTY_NOTICES
HOST := $(shell $(GO) env GOOS)-$(shell $(GO) env GOARCH)

.PHONY: compiler FORCE
compiler: $(WHEELS)/stubs/compiler/installed

# Code that no step runs is not inlined in wheels: their size counts.
PLAIN := $(foreach p,net/... crypto/... vendor/... encoding/gob text/... html/... go/... mime/... log/... charm.land/... \
	go.yaml.in/... $(addprefix github.com/,modelcontextprotocol/... google/... segmentio/... charmbracelet/... pelletier/... \
	spf13/... jedib0t/... NVIDIA/... $(addprefix vprof/vprof/,cli bench/report bench/advise/... bench/show/... \
	bench/fleet/...)),-gcflags=$(p)=-l)

bin/cuda/linux-%/vprof: compiler FORCE
	$(CUDA_ENV) GOOS=linux GOARCH=$* CC=$(CURDIR)/tools/zigcc ZIG=$(CURDIR)/$(ZIG) ZIG_TARGET=$(ZIG_$*)-linux-gnu.2.17 \
	  $(GO) build -trimpath -ldflags=-s $(PLAIN) -tags cuda,netgo,osusergo,nethttpomithttp2 -o $@ ./cmd/vprof

bin/planning/%/vprof: FORCE
	CGO_ENABLED=0 GOOS=$(firstword $(subst -, ,$*)) GOARCH=$(lastword $(subst -, ,$*)) $(GO) build -trimpath -ldflags=-s -o $@ ./cmd/vprof

$(NOTICES): notices
	cp LICENSE .cache/THIRD_PARTY_NOTICES python/

# Where zig is: the wheel of this machine is the one that others install, too.
WHEEL_BINARY := $(if $(GLIBC),$(if $(filter linux-amd64,$(HOST)),bin/cuda/linux-amd64/vprof,vprof),bin/planning/$(HOST)/vprof)

vprof: build

wheel: $(WHEEL_BINARY) $(NOTICES) ## dist/vprof_gpu-*.whl for this machine: the binary and the Python package
	$(PYTHON) -c 'import pip' 2>/dev/null || $(PYTHON) -m ensurepip -q # an environment that uv made has no pip
	rm -rf dist && VPROF_BINARY=$(CURDIR)/$< $(WHEEL)

# The binaries of the other wheels, and what their platforms are called there. Go's oldest macOS is 12.
WHEELS_OTHERS := cuda/linux-arm64=manylinux_2_17_aarch64.manylinux2014_aarch64 planning/linux-amd64=musllinux_1_1_x86_64 \
	planning/linux-arm64=musllinux_1_1_aarch64 planning/darwin-amd64=macosx_12_0_x86_64 planning/darwin-arm64=macosx_12_0_arm64 \
	planning/windows-amd64=win_amd64

wheels: wheel $(foreach w,$(WHEELS_OTHERS),bin/$(firstword $(subst =, ,$(w)))/vprof) ## wheels of all systems: with CUDA for glibc, others plan; on Linux x86-64
	mkdir -p dist/windows && cp bin/planning/windows-amd64/vprof dist/windows/vprof.exe
	@set -e; for w in $(WHEELS_OTHERS); do \
	  bin=bin/$${w%%=*}/vprof; case $$w in *windows*) bin=dist/windows/vprof.exe ;; esac; \
	  VPROF_BINARY=$(CURDIR)/$$bin VPROF_PLATFORM=$${w#*=} $(WHEEL); done
	rm -r dist/windows
	$(PYTHON) python/check_wheels.py dist/*.whl

wheel-check: wheel ## the wheel installs into an empty environment and plans there; the package's tests
	$(PYTHON) python/check_wheels.py dist/*.whl
	$(PYTHON) -m venv dist/empty && dist/empty/bin/pip install -q --no-index --find-links dist vprof-gpu
	dist/empty/bin/vprof plan --model gpt2 --gpu rtx-4090
	dist/empty/bin/python -m vprof_gpu version
	cd python && ../dist/empty/bin/python -m unittest discover -s tests

web: ## bin/web: the page that plans in a browser, as static files
	$(GO) run ./tools/web bin/web

$(WHEELS)/site/installed: tools/site/requirements.txt
	rm -rf $(@D)
	PIP_ROOT_USER_ACTION=ignore $(PYTHON) -m pip install --quiet --no-deps --require-hashes --target $(@D) -r $<
	touch $@

# The page that its test has built there (VPROF_PAGE) is not built again.
site: $(WHEELS)/site/installed $(if $(and $(VPROF_PAGE),$(wildcard bin/web/index.html)),,web) ## bin/site: the documents with search, and that page, as static files; checks its links
	rm -rf bin/site
	PYTHONPATH=$(CURDIR)/$(WHEELS)/site $(PYTHON) -m sphinx -q -W --keep-going -d .cache/doctrees -c tools/site . bin/site
	cp -r bin/web bin/site/ask
	$(PYTHON) tools/site/check.py bin/site

GORELEASER := ROOT=$(CURDIR) $(GO) run github.com/goreleaser/goreleaser/v2@v2.12.7

dist: ## dist/release: the archives of a release, with checksums and SBOMs; publishes nothing
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean --skip=publish
	$(PYTHON) python/check_wheels.py dist/release/cuda_linux_*/vprof

release: ## the same, and a draft on GitHub; on the commit of a tag, with GITHUB_TOKEN
	$(GORELEASER) release --clean

run-check: build ## training scripts under vprof run; needs a PYTHON with PyTorch for CUDA, torchvision, transformers, peft, timm, lightning and scipy
	python3 tools/evidence/run_check.py --vprof ./vprof --python $(PYTHON)

without-check: build ## scripts without their weights under vprof run equal those with them; needs a PYTHON as run-check does
	python3 tools/evidence/without_check.py --vprof ./vprof --python $(PYTHON)

guarantee: build ## how often a step or script needs more than the upper end of its estimate; needs a PYTHON as run-check does. DEVICE=cuda:0 tries 20 on a GPU
	$(PYTHON) tools/evidence/guarantee.py --vprof ./vprof $(if $(DEVICE),--device $(DEVICE) --cases 20)

EVIDENCE := bench/reference/data/2.15/zoo.jsonl.gz

evidence: build ## records bench/reference's zoo again with the PyTorch of PYTHON (transformers, timm), and compares; of 2.11 with EVIDENCE=bench/reference/data/zoo.jsonl
	python3 tools/evidence/run_check.py --vprof ./vprof --python $(PYTHON) --records $(EVIDENCE)

# Releases of transformers whose steps are recorded; those of 4.x and 5.x need other releases of what they import.
# Those of ATTENTION gave models another attention by default, those of EXPERTS other experts.
ATTENTION = 4.40.2 4.41.2 4.45.2 4.46.3 5.24.0
EXPERTS = 4.48.3 4.51.3 4.57.6 5.24.0
STACKS = 4.40.2 4.42.4 4.45.2 4.46.3 4.47.1 4.48.1 4.48.3 4.49.0 4.51.3 4.53.3 4.54.1 4.57.1 5.0.0 5.12.1 5.17.0 5.20.0 5.24.0

.PHONY: stacks
stacks: build ## records the steps of releases of transformers again; needs a PYTHON with PyTorch for CUDA
	for c in $(STACKS:%=stacks.json/%) $(ATTENTION:%=attention.json/%) \
	    $(EXPERTS:%=experts.json/%); do v=$${c#*/}; \
	  $(PYTHON) -m pip install -q --target $(WHEELS)/transformers-$$v transformers==$$v || exit 1; \
	  PYTHONPATH=$(WHEELS)/transformers-$$v HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all -- \
	    $(PYTHON) tools/record/stacks.py tools/record/$${c%/*} 2>&1 | grep '^{"stack"' || exit 1; \
	done | gzip -n > models/hfconfig/testdata/releases.jsonl.gz

# Steps under FullyShardedDataParallel; the first line is of tools/record/fsdp1_trainer.py.
FSDP1 = models/hfconfig/testdata/fsdp1.jsonl

.PHONY: fsdp1
fsdp1: build ## records steps under FullyShardedDataParallel again; needs a PYTHON with PyTorch for CUDA, transformers and peft
	for n in 2 4; do \
	  HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --gpus $$n --steps all -- $(PYTHON) -m torch.distributed.run \
	    --nproc_per_node $$n tools/record/fsdp1.py tools/record/fsdp1.json 2>&1 | grep '^{"stack"' || exit 1; \
	done | (head -1 $(FSDP1); cat) > $(FSDP1).new && mv $(FSDP1).new $(FSDP1)

TRL = 1.9.0 1.10.0 1.13.0 1.14.0 1.15.0 1.16.0

.PHONY: trl-stacks
trl-stacks: build ## records the steps of releases of TRL again; needs a PYTHON with what TRL imports, Triton and datasets included
	for v in $(TRL); do \
	  $(PYTHON) -m pip install -q --no-deps --target $(WHEELS)/trl-$$v trl==$$v || exit 1; \
	  PYTHONPATH=$(WHEELS)/trl-$$v HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all -- \
	    $(PYTHON) tools/record/trl_steps.py tools/record/trl_steps.json .cache/trl 2>&1 | grep '^{"stack"' || exit 1; \
	done | gzip -n > cli/testdata/trl.jsonl.gz

.PHONY: torchtune-files
torchtune-files: build ## records steps of torchtune's example files again; needs a PYTHON with torchtune 0.6.1, torchao 0.12, bitsandbytes, transformers 4.57 and PyTorch 2.8 for CUDA
	HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all --keep-files -- $(PYTHON) tools/record/torchtune_files.py \
	  cli/testdata/torchtune.jsonl.gz .cache/torchtune 2>&1 | grep '^{"stack"' | gzip -n > .cache/torchtune.jsonl.gz
	mv .cache/torchtune.jsonl.gz cli/testdata/torchtune.jsonl.gz

.PHONY: llamafactory-files
llamafactory-files: build ## records steps of LLaMA-Factory's example files again; needs a PYTHON with llamafactory 0.9.5 and its dependencies
	HF_HUB_OFFLINE=1 DISABLE_VERSION_CHECK=1 ./vprof run --gpu a100-40 --steps all --keep-files -- $(PYTHON) \
	  tools/record/llamafactory_files.py cli/testdata/llamafactory.jsonl.gz .cache/llamafactory 2>&1 \
	  | grep '^{"stack"' | gzip -n > .cache/llamafactory.jsonl.gz
	mv .cache/llamafactory.jsonl.gz cli/testdata/llamafactory.jsonl.gz

.PHONY: axolotl-files
axolotl-files: build ## records steps of axolotl's example files again; needs a PYTHON with axolotl 0.19.0 and its dependencies
	mkdir -p .cache/axolotl && zcat cli/testdata/axolotl.jsonl.gz | split -l 1 - .cache/axolotl/case-
	for f in .cache/axolotl/case-*; do \
	  HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all --keep-files -- $(PYTHON) tools/record/axolotl_files.py \
	    $$f .cache/axolotl/data 2>&1 | grep '^{"stack"' || exit 1; \
	done | gzip -n > .cache/axolotl.jsonl.gz
	mv .cache/axolotl.jsonl.gz cli/testdata/axolotl.jsonl.gz

.PHONY: msswift-files
msswift-files: build ## records steps of ms-swift's example commands again; needs a PYTHON with ms-swift 4.6.0 and its dependencies
	HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all --keep-files -- $(PYTHON) tools/record/msswift_files.py \
	  cli/testdata/msswift.jsonl.gz .cache/msswift 2>&1 | grep '^{"stack"' | gzip -n > .cache/msswift.jsonl.gz
	mv .cache/msswift.jsonl.gz cli/testdata/msswift.jsonl.gz

.PHONY: trl-files
trl-files: build ## records steps of TRL's documented commands again; needs what trl-stacks needs, bitsandbytes and liger-kernel
	for v in 1.10.0 1.13.0 1.16.0; do \
	  $(PYTHON) -m pip install -q --no-deps --target $(WHEELS)/trl-$$v trl==$$v || exit 1; \
	  PYTHONPATH=$(WHEELS)/trl-$$v HF_HUB_OFFLINE=1 ./vprof run --gpu a100-40 --steps all --keep-files -- $(PYTHON) \
	    tools/record/trl_files.py cli/testdata/trl-files.jsonl.gz .cache/trl-files 2>&1 | grep '^{"stack"' || exit 1; \
	done | gzip -n > .cache/trl-files.jsonl.gz
	mv .cache/trl-files.jsonl.gz cli/testdata/trl-files.jsonl.gz

lint: ## formatting, vet, the words of texts and the linters of .golangci.yml
	@unformatted="$$($(TOOL) gofumpt -l .)"; \
	  [ -z "$$unformatted" ] || { echo "not gofumpt'ed (make fmt):"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run ./tools/words
	$(TOOL) golangci-lint run ./...

VULNERABILITIES := https://vuln.go.dev/index/db.json

vulncheck: ## known vulnerabilities in what vprof calls, where Go's database answers
	@curl -fsS -m 30 -o /dev/null $(VULNERABILITIES) || { echo "vulncheck: $(VULNERABILITIES) does not answer: nothing is checked"; exit 0; }; \
	  $(CUDA_ENV) $(TOOL) govulncheck -tags cuda ./cmd/... ./cli/...

python-lint: .cache/python-lint/installed ## the linters of Python; types of the package
	PYTHONPATH=.cache/python-lint python3 -m ruff check .
	cd python && PYTHONPATH=../.cache/python-lint python3 -m mypy --cache-dir ../.cache/mypy vprof_gpu

.cache/python-lint/installed: tools/linters/python.txt
	rm -rf $(@D)
	PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --target $(@D) -r $<
	touch $@

lines: ## lines of code by kind; fails above the limit
	tools/lines.sh

fmt: ## format in place
	$(TOOL) gofumpt -w .

SETTINGS := 3000

properties: ## hours: verdicts of all verbs on SETTINGS random settings of fifteen models on twelve GPUs, and of any model on any GPU
	VPROF_SETTINGS=$(SETTINGS) $(GO) test ./cli -run TestVerbsAgree -count 1 -timeout 0 -v

nightly: properties fuzz-nightly allocator-check ## the checks that take hours, and all cases of tests that take minutes
	VPROF_TESTS=nightly $(GO) test -timeout 60m ./tools/web ./kernels ./bench/experiment/fit
	$(CUDA_ENV) VPROF_TESTS=nightly $(GO) test -timeout 60m -tags cuda ./tools/gpucheck ./cli

bench: ## benchmarks, in a form that benchstat reads
	$(GO) test -run '^$$' -bench . -benchmem ./...

# What was found interesting stays in .cache/fuzz for the next time. The limit on
# the address space is of each process, in KiB: a parser that a small input makes
# take more than 4 GiB is wrong. Without a bound, making each interesting input smaller
# takes a minute, in which nothing else is tried. The sources are asked for the targets:
# go test -list would link every package.
fuzz: ## every fuzz target for FUZZTIME each, with memory limited and the corpora kept
allocator-check: ## the caching allocator against PyTorch's own under vprof run; needs a PYTHON with PyTorch and a build of vprof
	$(GO) run ./tools/allocations --vprof ./vprof --python $(PYTHON)

fuzz-nightly: ## the same for a million inputs each
fuzz-nightly: FUZZTIME = 1000000x

fuzz fuzz-nightly:
	@set -e; grep -r --include='*_test.go' -o '^func Fuzz[[:alnum:]]*' bench cli internal kernels models profiler tools | sort | \
	while IFS=: read -r file func; do \
	  dir=$$(dirname "$$file") target=$${func#func }; kept=$(CURDIR)/.cache/fuzz/$$dir; mkdir -p "$$kept"; \
	  echo "fuzz ./$$dir $$target"; \
	  $(GO) test -c -fuzz "^$$target\$$" -o "$$kept/test" "./$$dir" </dev/null; \
	  (cd "$$dir" && ulimit -v 4194304 && "$$kept/test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 10x \
	    -test.fuzzcachedir "$$kept" </dev/null); \
	  rm "$$kept/test"; \
	done

golden: ## rewrite golden files, residuals and the accuracy table (for a change that is meant)
	VPROF_TESTS=all $(GO) test -p 1 ./bench/experiment/accuracy ./bench/reference/microscope ./bench/show/profile ./bench/report ./cli ./models/nn -update

docs: ## the command reference, as Markdown and man pages, in .cache/docs
	rm -rf .cache/docs && VPROF_DOCS=$(CURDIR)/.cache/docs $(GO) test -count=1 ./cli -run TestCommandReferenceIsGenerated

pictures: ## the README's pictures; needs Chromium
	$(GO) test -count=1 ./cli -run TestPictureOfTheTerminalIsCurrent -update
	VPROF_SCREENSHOT=$(CURDIR)/docs/report.png $(GO) test -count=1 ./bench/show/page -run TestScreenshot

time-picture: ## the picture of docs/time.md, from the records
	$(GO) run ./tools/steptimes -picture docs/time.svg

cover: ## coverage of all packages by all tests
	VPROF_TESTS=all $(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

# The CUDA compiler, assemblers and header come as wheels, pinned by their hashes,
# and need no GPU. They run on x86-64 Linux with Python 3.

$(WHEELS)/%/installed: kernels/cudac/wheels/%.txt
	rm -rf $(@D)
	PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --require-hashes --target $(@D) -r $<
	touch $@

# Each archive has the modules in the order of their architectures.
PACKED = python3 tools/pack.py $(1)/modules.tar$(if $(filter kernels/%,$(1)),.xz) $(foreach m,$(3),$(WHEELS)/$(2)/sm_$(m).$(2))
PACK_KERNELS = $(call PACKED,$(1)ptx,ptx,70 75 80) && $(call PACKED,$(1)cubin,cubin,75 80 86 90 100 120)

.PHONY: modules
modules: $(WHEELS)/nvrtc/installed $(WHEELS)/ptxas-12.9/installed
	python3 kernels/cudac/compile.py $(WHEELS)/nvrtc $(WHEELS)/ptx
	python3 kernels/cudac/cubins.py $(WHEELS)/ptxas-12.9 $(WHEELS)/ptx $(WHEELS)/cubin

kernels: modules ## kernels/ptx and kernels/cubin from kernels/cudac
	cp $(WHEELS)/cubin/usage.csv kernels/cubin
	$(call PACK_KERNELS,kernels/)

# Every module goes through the oldest assembler as every GPU's driver would do it
# (sm_70.ptx for sm_70, sm_75.ptx for sm_75, sm_80.ptx for all later ones), and
# through the one that the cubins come from.
kernels-check: modules $(WHEELS)/ptxas-11.8/installed cuda-header ## PTX and cubins match their sources
	$(call PACK_KERNELS,$(WHEELS)/)
	for f in ptx cubin; do xz -dc kernels/$$f/modules.tar.xz | cmp - $(WHEELS)/$$f/modules.tar || exit 1; done
	cmp kernels/cubin/usage.csv $(WHEELS)/cubin/usage.csv
	kernels/cudac/assemble $(WHEELS)/ptxas-11.8 $(WHEELS)/ptx 70 75 80 90

cuda-header: $(WHEELS)/header/installed ## our header of the driver matches NVIDIA's
	VPROF_CUDA_INCLUDE=$(CURDIR)/$(WHEELS)/header/nvidia/cuda_runtime/include \
	  $(CUDA_ENV) $(GO) test -count=1 -tags cuda -run TestHeaderIsNVIDIAs ./internal/cudalib

STUBS := profiler/device/stubs
STUB_WHEELS := $(WHEELS)/stubs

$(STUB_WHEELS)/%/installed: $(STUBS)/wheels/%.txt
	rm -rf $(@D)
	PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --require-hashes --target $(@D) -r $<
	touch $@

# The stubs of NVIDIA's libraries, for CUDA 12 and 13, packed for each processor.
STUB_ARCHIVES := linux_amd64.tar linux_arm64.tar
$(addprefix $(STUB_WHEELS)/,$(STUB_ARCHIVES)): $(STUB_WHEELS)/linux_%.tar: $(foreach w,compiler headers-12 headers-13,$(STUB_WHEELS)/$(w)/installed) $(wildcard $(STUBS)/source/*) $(STUBS)/build.sh
	rm -rf $(STUB_WHEELS)/$*
	export PYTHONPATH=$(CURDIR)/$(STUB_WHEELS)/compiler CC='python3 -m ziglang cc -target $(ZIG_$*)-linux-gnu.2.17'; set -e; h=$(CURDIR)/$(STUB_WHEELS); \
	$(STUBS)/build.sh 12 $(STUB_WHEELS)/$*/12 $$h/headers-12/nvidia/cuda_runtime/include $$h/headers-12/nvidia/cuda_nvcc/include & \
	$(STUBS)/build.sh 13 $(STUB_WHEELS)/$*/13 $$h/headers-13/nvidia/cu13/include; \
	wait $$!
	python3 tools/pack.py $@ $(STUB_WHEELS)/$*

stubs: $(addprefix $(STUB_WHEELS)/,$(STUB_ARCHIVES)) ## the stubs of NVIDIA's libraries, from their sources
	for f in $(STUB_ARCHIVES); do xz -9ec $(STUB_WHEELS)/$$f > $(STUBS)/$$f.xz || exit 1; done

stubs-check: $(addprefix $(STUB_WHEELS)/,$(STUB_ARCHIVES)) ## the packed stubs match their sources
	for f in $(STUB_ARCHIVES); do xz -dc $(STUBS)/$$f.xz | cmp - $(STUB_WHEELS)/$$f || exit 1; done

# A processor's emulator keeps an entry for each reserved page, so that the limit, in KiB, keeps reservations small.
stubs-emulated: $(STUB_WHEELS)/linux_arm64.tar ## a C program drives the stubs for arm64 (needs qemu-user-static, libc6-arm64-cross)
	PYTHONPATH=$(STUB_WHEELS)/compiler python3 -m ziglang cc -std=gnu11 -w -target aarch64-linux-gnu.2.17 -o $(STUB_WHEELS)/drive $(STUBS)/testdata/drive.c -ldl
	printf 'name GPU\nmemory 1073741824\ncontext 268435456\ncount 2\n' > $(STUB_WHEELS)/gpu
	ulimit -v 60000000; VPROF_STUB_GPU=$(STUB_WHEELS)/gpu CUDA_VISIBLE_DEVICES=0,1 \
	  qemu-aarch64-static -L /usr/aarch64-linux-gnu $(STUB_WHEELS)/drive $(CURDIR)/$(STUB_WHEELS)/arm64/13

# PyTorch and what it imports, none of NVIDIA's packages.
$(WHEELS)/torch/installed:
	rm -rf $(@D)
	PIP_ROOT_USER_ACTION=ignore $(PYTHON) -m pip install --quiet --no-deps --no-compile --no-cache-dir --target $(@D) torch==2.15.0 \
	  filelock fsspec jinja2 markupsafe mpmath networkx sympy typing_extensions
	touch $@

run-alone: $(WHEELS)/torch/installed ## two training scripts under vprof run with PyTorch from pip alone; needs a build of vprof
	PYTHONPATH=$(CURDIR)/$(WHEELS)/torch $(PYTHON) tools/evidence/run_check.py --vprof ./vprof --python $(PYTHON) --first nanogpt fsdp2_gpt

clean:
	rm -f vprof coverage.out
