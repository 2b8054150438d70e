# The targets need Go and nothing else. The tools that they run are pinned in
# tools/go.mod and built on first use; `race` alone needs a C compiler.

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
FUZZTIME ?= 5s

.PHONY: all build test race lint fmt bench fuzz golden cover clean

all: build lint test

build: ## the vprof binary
	$(GO) build -trimpath -o vprof ./cmd/vprof

test: ## all tests
	$(GO) test ./...

race: ## all tests under the race detector
	CGO_ENABLED=1 $(GO) test -race ./...

lint: ## formatting, vet and the linters of .golangci.yml
	@unformatted="$$($(TOOL) gofumpt -l .)"; \
	  [ -z "$$unformatted" ] || { echo "not gofumpt'ed (make fmt):"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(TOOL) golangci-lint run ./...

fmt: ## format in place
	$(TOOL) gofumpt -w .

bench: ## benchmarks, in a form that benchstat reads
	$(GO) test -run '^$$' -bench . -benchmem ./...

fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

golden: ## rewrite golden files, residuals and the accuracy table (for a change that is meant)
	$(GO) test -p 1 ./bench ./bench/microscope ./bench/report ./cmd/vprof ./models/nn -update

cover: ## coverage of all packages by all tests
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

clean:
	rm -f vprof coverage.out
