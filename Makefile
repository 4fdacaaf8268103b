# `make help` lists the targets. Every target does all of its own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# One set of flags for everything, so that Go's cache serves all of it. Only the race detector needs another set. Compiling without
# tables for a debugger takes a tenth less time. hack/stages.sh and playground/programs/flags.go have the same flags.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false -trimpath -gcflags=all=-dwarf=false

# The version of Kubernetes that playgrounds and tests run. Empty means the newest; `bin/playground programs list --help` names the others.
KUBERNETES ?=
ifneq ($(KUBERNETES),)
export PLAYGROUND_KUBERNETES := $(KUBERNETES)
endif

VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/azuredisk-csi/azuredisk/internal/version.Version=$(VERSION)
GO_BUILD := go build -ldflags '$(LDFLAGS)'

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Start a real Kubernetes, move a pod, print and draw the timeline (KEEP=1 leaves it running)
	@hack/demo.sh

.PHONY: test
test: ## Run everything that CI runs: lint, unit tests, csi-sanity, faults, a real cluster
	@hack/test.sh

.PHONY: build
build: ## Build our programs into bin/
	@mkdir -p bin
	@echo "build: azuredisk, azuresim, kubectl-azuredisk, playground (version $(VERSION))"
	@$(GO_BUILD) -o bin/ ./cmd/...
	@cd cli/kubectl-azuredisk && $(GO_BUILD) -o ../../bin/ .
	@cd playground && $(GO_BUILD) -o ../bin/ ./cmd/...

CACHE ?= $(or $(AZUREDISK_CACHE),$(HOME)/.cache/azuredisk)
IMAGE = $(MAKE) --no-print-directory bin/image && bin/image
# The time of the commit, so that a commit has one image.
CREATED ?= $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 0))
# The registry, and perhaps a folder in it, to which images are pushed.
REGISTRY ?=
REPOSITORY = $(or $(REGISTRY),$(error REGISTRY is not set: make $@ REGISTRY=registry.example.com))/azuredisk
KEY ?= cosign.key
# The repository of who publishes. The default is that of the chart, which cannot resolve.
HOMEPAGE ?= $(shell sed -n 's/^home: *//p' charts/azuredisk/Chart.yaml)
# Who builds, and the run of it, for the provenance.
BUILDER ?= $(HOMEPAGE)/manual
INVOCATION ?=
# The commit, if there are no other changes.
REVISION ?= $(shell [ -n "$$(git status --porcelain 2>&1)" ] || git rev-parse HEAD)

COMPILE := $(CURDIR)/hack/compile.sh
HOST := $(shell go env GOHOSTARCH)

DRIVERS := out/driver/amd64/azuredisk out/driver/arm64/azuredisk
.PHONY: $(DRIVERS)
$(DRIVERS): out/driver/%/azuredisk: | modules
	@echo "image: building the driver for linux/$*"
	@GOOS=linux GOARCH=$* $(COMPILE) $(GO_BUILD) -o $@ ./cmd/azuredisk

# Go compiles a package twice if two commands need it at once. The tool and the driver for this machine's architecture therefore
# follow each other, and the standard library for the other architecture is compiled while modules are downloaded.
out/driver/$(HOST)/azuredisk: | bin/image
$(filter-out out/driver/$(HOST)/%,$(DRIVERS)): | standard-library

.PHONY: modules
modules:
	@GOOS=linux go list -deps ./cmd/azuredisk > /dev/null

.PHONY: standard-library
standard-library:
	@GOOS=linux GOARCH=$(filter-out $(HOST),$(patsubst out/driver/%/azuredisk,%,$(DRIVERS))) $(COMPILE) go build net/http

.PHONY: bin/image
bin/image:
	@cd image && $(COMPILE) go build -o ../bin/image ./cmd/image

.PHONY: image-packages
image-packages: bin/image
	@bin/image fetch --cache $(CACHE)/debian

.PHONY: image
image: ## Make the driver's image for linux/amd64 and linux/arm64 in out/image (needs no root and no container engine)
	@$(MAKE) --no-print-directory -j5 $(DRIVERS) image-packages # at once: the compiler and the linker alone do not use all cores
	@bin/image build --out out/image --sbom out/sbom --cache $(CACHE)/debian \
	  --program amd64=out/driver/amd64/azuredisk,arm64=out/driver/arm64/azuredisk \
	  --version $(VERSION) --created $(CREATED) --licence LICENSE --home $(HOMEPAGE) --revision "$(REVISION)" \
	  --builder "$(BUILDER)" --invocation "$(INVOCATION)" --parameters target=image,VERSION=$(VERSION),HOMEPAGE=$(HOMEPAGE)

.PHONY: image-lock
image-lock: ## Raise the Debian packages of the image and of vm-test to the newest versions, verified by Debian's signatures
	@cd image && go run ./cmd/lock image packages.lock.yaml $(CACHE)/debian
	@cd image && go run ./cmd/lock testvm testvm/packages.lock.yaml $(CACHE)/debian

PLUGINS := $(foreach system,linux darwin windows,$(foreach architecture,amd64 arm64,out/plugin/$(system)-$(architecture)))
.PHONY: $(PLUGINS)
$(PLUGINS): out/plugin/%: | bin/image
	@echo "plugins: building kubectl-azuredisk for $*"
	@cd cli/kubectl-azuredisk && GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) \
	  $(COMPILE) $(GO_BUILD) -o $(CURDIR)/$@/ .
	@bin/image notices --program $@/kubectl-azuredisk$(if $(findstring windows,$*),.exe) --out $@/THIRD-PARTY-NOTICES

.PHONY: plugins
plugins: $(PLUGINS) ## Build `kubectl azuredisk` for Linux, macOS and Windows in out/plugin

.PHONY: push
push: ## Push out/image to REGISTRY/azuredisk, with the credentials of `docker login`
	@$(IMAGE) push --layout out/image --repository $(REPOSITORY)

.PHONY: sign
sign: ## Sign what is pushed to REGISTRY/azuredisk, and how it was built, with KEY, in cosign's format (password in COSIGN_PASSWORD)
	@$(IMAGE) sign --layout out/image --repository $(REPOSITORY) --key $(KEY)

.PHONY: sign-chart
sign-chart: ## Sign what is pushed to REGISTRY/charts/azuredisk, as sign does
	@$(IMAGE) sign --layout out/chart --repository $(dir $(REPOSITORY))charts/azuredisk --key $(KEY)

# The version and the home page, if they are given.
given = $(if $(filter file,$(origin $1)),,$($1))
RELEASE = VERSION=$(call given,VERSION) REGISTRY=$(REGISTRY) HOMEPAGE=$(call given,HOMEPAGE) \
	REVISION="$(REVISION)" BUILDER="$(BUILDER)" INVOCATION="$(INVOCATION)" hack/release.sh

.PHONY: prepare-release
prepare-release: ## Write VERSION into the chart and CHANGELOG.md, as the commit that is released has it
	@$(RELEASE) prepare

.PHONY: release
release: ## Make everything that a release has, in out/release (VERSION=1.2.3, REGISTRY of the image, HOMEPAGE of the publisher)
	@$(RELEASE) check
	@$(MAKE) --no-print-directory image
	@rm -rf out/plugin
	@$(MAKE) --no-print-directory plugins manifests
	@$(RELEASE) make

.PHONY: manifests
manifests: ## Make manifests for kustomize, and the alerts for Azure's managed Prometheus, from the chart, in out/manifests
	@rm -rf out/manifests
	@go run ./hack/manifests charts/azuredisk out/manifests
	@go run ./hack/rules charts/azuredisk out/manifests/azure-monitor/rules.json

.PHONY: push-chart
push-chart: ## Push the chart that `make release` made to REGISTRY/charts/azuredisk
	@$(IMAGE) push --layout out/chart --repository $(dir $(REPOSITORY))charts/azuredisk

.PHONY: publish
publish: ## Push the release to REGISTRY, sign it without a key (cosign), and create it at GitHub (gh)
	@$(RELEASE) publish

.PHONY: packages
packages: ## Install the system packages that building and testing need (root, Debian or Ubuntu)
	@hack/install-packages.sh

.PHONY: programs
programs: packages build ## Build the pinned Kubernetes (KUBERNETES=1.34 for another version), etcd, containerd, … (cached outside of the tree)
	@bin/playground programs ensure

.PHONY: unit
unit: ## Run the unit tests, those of concurrent packages with the race detector
	@hack/test.sh unit

.PHONY: simulation
simulation: ## Play 10,000 random histories of the whole driver, and the mutants (FIRST=20001 HISTORIES=50000 for others; FLAT=1 to stop when 1,000 histories add less than 1 % of the states; 25 minutes)
	@GODEBUG=adaptivestackstart=1 go test -vet=off -timeout 0 -v ./test/simulation -run 'TestHistories$$|TestTheSimulationFindsBrokenLaws' \
		-first $(or $(FIRST),1) -histories $(or $(HISTORIES),10000) -flat $(or $(FLAT),0)

# What decides and acts in the histories. What only wires, serves HTTP or talks to Azure is not theirs.
reached = internal/plan/... internal/controller/csi/... internal/controller/attachment/... internal/controller/attachdetach/... \
	internal/controller/failover/... internal/controller/keeper/... internal/controller/liveness/... internal/node/csi/...
comma = ,

.PHONY: reach
reach: ## Play 10,000 histories, and print which code of the driver none of them runs (HISTORIES=1000; 40 minutes)
	@mkdir -p out && GODEBUG=adaptivestackstart=1 go test -vet=off -timeout 0 -v ./test/simulation -run 'TestHistories$$' \
		-coverprofile=out/reach.cover -coverpkg=$(subst $() ,$(comma),$(addprefix ./,$(reached))) -args -states -histories $(or $(HISTORIES),10000)
	@go run ./hack/reach

.PHONY: mutation
mutation: ## Change the code of decisions in 400 places, one at a time, and print what no test notices (PACKAGE=./internal/plan/... SAMPLE=100 SEED=2)
	@unshare --mount --propagation slave go run ./hack/mutation -sample $(or $(SAMPLE),400) -seed $(or $(SEED),1) $(PACKAGE)

.PHONY: sanity
sanity: ## Run all of csi-sanity on the whole stack over azuresim with real devices: filesystem, then raw block
	@hack/test.sh sanity
	@grep -a -E '^(Ran [0-9]+ of |SUCCESS! -- )' out/test/sanity.log

.PHONY: chaos
chaos: ## Kill the processes at random under load and check that nothing is lost or left over
	@hack/test.sh chaos

.PHONY: e2e
e2e: ## Real clusters: the life cycle of volumes, upgrade, node loss, uninstall, migration (KUBERNETES=1.34 for another version)
	@hack/test.sh e2e

.PHONY: guides
guides: programs ## Run the commands of the guides to AKS, to an upgrade, to uninstalling and to self-managed clusters (5 minutes)
	@hack/e2e.sh guides

.PHONY: alerts-test
alerts-test: ## Check the alerts, the recording rules and the dashboard's queries, and run their unit tests, with promtool (builds it once, some minutes)
	@hack/alerts-test.sh

.PHONY: vm-test
vm-test: programs ## Test the host library and the node plug-in in a virtual machine, with real SCSI disks, NVMe and reservations (10 minutes)
	@hack/vm-test.sh

.PHONY: bench
bench: programs ## Measure bursts of volumes, attach batching and the extender
	@go test -run '^$$' -bench . -benchtime 1x ./test/bench/... ./internal/scheduler/...

NODES ?= 500 2000 5000

.PHONY: bench-scale
bench-scale: programs ## Measure the programs in clusters of 500, 2,000 and 5,000 nodes (NODES="200" for another size)
	@rm -rf out/bench-scale
	@for n in $(NODES); do go test -run '^$$' -bench Scale -benchtime 1x -timeout 60m ./test/scale -nodes $$n || exit 1; done

.PHONY: generate
generate: ## Generate code, manifests and reference documentation
	@hack/generate.sh

.PHONY: update
update: generate ## Update every generated file and golden chart file
	@go test ./test/chart/... -update
	@go test ./internal/azuresim/rules -run TestTheTableOfRules -update

.PHONY: verify
verify: ## Fail if a generated file is out of date
	@hack/verify.sh

# The URL of the folder to which the site's links to sources lead. Without it these are no links.
SOURCES ?=

.PHONY: docs
docs: ## Build the documentation as a site with search, in out/docs/site (SOURCES=https://github.com/OWNER/REPOSITORY/blob/main)
	@hack/install-packages.sh mkdocs:mkdocs mkdocs-material:/usr/share/mkdocs/themes/material
	@rm -rf out/docs
	@go run ./hack/site out/docs "$(SOURCES)"
	@PYTHONWARNINGS=ignore mkdocs build -f out/docs/mkdocs.yml

.PHONY: docs-test
docs-test: ## Build the site, and test its links and its search in a browser
	@go test -count=1 -v ./test/site

.PHONY: fmt
fmt: ## Format the code
	@$$(hack/tool.sh golangci-lint) fmt ./...

.PHONY: lint
lint: ## Run the linters
	@$$(hack/tool.sh golangci-lint) run ./...
	@cd playground && $$(../hack/tool.sh golangci-lint) run --config ../.golangci.yaml ./...
	@cd image && $$(../hack/tool.sh golangci-lint) run --config ../.golangci.yaml ./...
	@cd cli/kubectl-azuredisk && $$(../../hack/tool.sh golangci-lint) run --config ../../.golangci.yaml ./...

# Every module but those of upstream's programs, old versions among them, which only tests run. A module of tools has no packages of
# its own: its pattern is "tool".
MODULES = $(filter-out ./playground/programs/%,$(patsubst %/go.mod,%,$(shell find . -name go.mod)))
.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in what our programs and tools call (it asks vuln.go.dev; VULNDB=file:///… for a copy)
	@check=$$(hack/tool.sh govulncheck) && failed=0 && for module in $(MODULES); do \
	  pattern=./...; ! grep -q '^tool\b' $$module/go.mod || pattern=tool; \
	  echo "vulnerabilities: $$module"; \
	  $$check $(if $(VULNDB),-db $(VULNDB)) -C $$module $$pattern || failed=1; \
	done && exit $$failed

.PHONY: clean
clean: ## Remove the built files (the cache outside of the tree stays)
	@rm -rf bin out
