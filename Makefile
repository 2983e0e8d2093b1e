# Everything here needs Go and nothing else. The first `make chaos` builds
# Kubernetes' own programs as well and keeps them for the next time.

SCENARIO   ?= node-shutdown
CLUSTER    ?= controlplane
CLEANER    ?= fixed
ITERATIONS ?= $(if $(filter kind,$(CLUSTER)),20,300)
SEED       ?=
LANES      ?=
OUT        ?= out
BASELINE   ?= $(OUT)/baseline
FUZZTIME   ?= 20s
SWEEP      ?= 60s

# The race detector needs a C compiler; a machine without one tests without it.
RACE ?= $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && echo -race)

# The simulator plays what it can start by itself: no programs, no images.
SWEEP_RUN = $(if $(filter fixed canary:%,$(CLEANER)),bin/danm-chaos run --cluster sim --cleaner '$(CLEANER)' --for $(SWEEP) --out '$(OUT)',true)

RUN_OUT = $(OUT)
RUN = bin/danm-chaos run $(SCENARIO) --cluster $(CLUSTER) --cleaner '$(CLEANER)' --iterations $(ITERATIONS) --out '$(RUN_OUT)' \
	$(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes $(LANES))

.DEFAULT_GOAL := help
.PHONY: help build programs chaos sweep stress regression canaries test bench lint rules existing-kind chaos-mesh fleet-test fuzz verify image doctor clean

help: ## list the targets
	@echo 'variables: SCENARIO CLUSTER CLEANER ITERATIONS SEED LANES OUT BASELINE SWEEP'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/danm-chaos and bin/danm-cleaner
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -o bin/ ./cleaner/cmd/danm-cleaner ./harness/cmd/danm-chaos

programs: build ## build etcd and Kubernetes' programs, once; they are kept in the user's cache
	@bin/danm-chaos programs bin/kubernetes

chaos: build ## simulate for SWEEP (60s), then shut nodes down under the cleaner, ITERATIONS times (300; on CLUSTER=kind 20)
	@$(SWEEP_RUN)
	@$(if $(filter sim,$(CLUSTER)),,$(RUN))

sweep: build ## simulate for SWEEP (60s) under the cleaner
	@$(SWEEP_RUN)

stress: build ## check that equal simulations give equal histories: 500 seeds, 20 times each, in four processes
	@bin/danm-chaos stress

# An Invalid run is compared all the same: compare names what is new. Only a
# Valid one becomes a baseline. The runs have a folder of their own, so that
# other runs stay out of it.
regression: RUN_OUT = $(OUT)/regression
regression: build ## run this tree and compare it with BASELINE, which is written if there is none
	@code=0; $(RUN) || code=$$?; \
	new='$(RUN_OUT)/latest/run.json'; \
	if [ $$code -gt 3 ]; then exit $$code; fi; \
	if [ -e '$(BASELINE)' ]; then exec bin/danm-chaos compare '$(BASELINE)' "$$new" --out '$(RUN_OUT)'; fi; \
	if [ $$code -ne 0 ]; then echo "no baseline is written: this run is not Valid"; exit $$code; fi; \
	mkdir -p '$(BASELINE)' && cp "$$new" '$(BASELINE)/run.json' && echo 'baseline written: $(BASELINE)/run.json'

canaries: build ## run the cleaners that are known to be wrong; each must be found
	@bin/danm-chaos canaries --cluster $(CLUSTER) --out '$(OUT)'

# Most tests wait for clusters, so more of them than cores run at once.
test: programs ## run all tests, with the race detector where there is a C compiler
	@$(if $(RACE),,echo 'no C compiler: testing without the race detector')
	KUBERNETES_BIN_DIR='$(CURDIR)/bin/kubernetes' go test $(RACE) -p 4 -timeout 20m ./...

bench: programs ## run the benchmarks of danm-cleaner and of the simulator and print their figures
	bin/danm-chaos run node-shutdown --cluster sim --seeds 1-2000 --out '$(OUT)'
	DANM_BENCH=1 KUBERNETES_BIN_DIR='$(CURDIR)/bin/kubernetes' go test ./cleaner/bench -v -timeout 60m

lint: ## run go vet and staticcheck
	go vet ./...
	go -C clusters/tools/lint build -o ../../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...

rules: ## check the alert rules by promtool, which is built first (minutes)
	go -C clusters/tools/prometheus build -tags remove_all_sd -o ../../../bin/promtool github.com/prometheus/prometheus/cmd/promtool
	PROMTOOL='$(CURDIR)/bin/promtool' go test ./cleaner/deploy -run Promtool

existing-kind: ## test on a kind cluster made beforehand, as one of others: shutdowns by hooks, a killed run (4 minutes)
	DANM_KIND_TEST=1 go test ./clusters/existing -run KindCluster -v -timeout 20m

# The part on kind is skipped where no engine runs: its tests say so.
chaos-mesh: programs ## test with the real Chaos Mesh, on the embedded control plane and on kind, once it is built (minutes)
	clusters/tools/chaosmesh/build.sh bin/chaos-mesh
	CHAOS_MESH_DIR='$(CURDIR)/bin/chaos-mesh' DANM_KIND_TEST=1 KUBERNETES_BIN_DIR='$(CURDIR)/bin/kubernetes' go test ./clusters/existing -run ChaosMesh -v -timeout 30m

fuzz: ## fuzz everything that parses, FUZZTIME each (20s)
	go test ./cleaner/ipam -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/ipam -run '^$$' -fuzz '^FuzzOpen$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/danm -run '^$$' -fuzz '^FuzzParseAddress$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/danm -run '^$$' -fuzz '^FuzzAnnotation$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/danm -run '^$$' -fuzz '^FuzzToNetwork$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/danm -run '^$$' -fuzz '^FuzzToEndpoint$$' -fuzztime $(FUZZTIME)
	go test ./cleaner/audit -run '^$$' -fuzz '^FuzzExamine$$' -fuzztime $(FUZZTIME)
	go test ./cleaner -run '^$$' -fuzz '^FuzzReconcile$$' -fuzztime $(FUZZTIME)

verify: ## check formatting and go.mod without changing either
	@unformatted=$$(gofmt -l cleaner clusters harness reports scenarios *.go); \
		if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; fi
	go mod tidy -diff
	go mod verify

image: build ## build the container images danm-cleaner and danm-chaos from bin
	docker build --target prebuilt -t danm-cleaner .
	docker build --target danm-chaos -t danm-chaos .

fleet-test: programs ## test fleets on the embedded control plane and on a kind cluster (minutes)
	DANM_KIND_TEST=1 KUBERNETES_BIN_DIR='$(CURDIR)/bin/kubernetes' go test ./clusters/existing/fleet -v -timeout 20m

doctor: build ## say what this machine lacks for CLUSTER
	@bin/danm-chaos doctor --cluster $(CLUSTER)

clean: ## end what killed runs left behind, remove bin and OUT
	@if [ -x bin/danm-chaos ]; then bin/danm-chaos clean; fi
	rm -rf bin '$(OUT)'
