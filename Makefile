# Every target is a few lines. Longer ones call a script or a Go program.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
INTEGRATION := test-integration-a test-integration-other test-integration-packages
.PHONY: help deps build check lint test test-unit test-kit test-release test-integration $(INTEGRATION) test-hostile test-hosts test-client test-oci test-cri test-critest test-containerd-cri test-kubelet test-docker test-buildkit test-runsc test-long test-vm test-vm-short test-rkt test-fuzz test-kvm test-kvm-short test-kvm-client test-kvm-hostile test-kvm-kit test-kvm-critest test-kvm-docker kvm compat bench bench-kvm demo install uninstall release release-kvm clean

PREFIX   ?= /usr/local
BIN      := $(CURDIR)/bin
DIST     ?= dist
# Of this directory's repository: a tarball may be unpacked inside another one.
GIT      := GIT_CEILING_DIRECTORIES="$$(dirname '$(CURDIR)')" git
VERSION  ?= $(shell scripts/version)
REVISION ?= $(shell $(GIT) rev-parse HEAD 2>/dev/null || echo unknown)
# A build is the same in a checkout and in a tarball, in any directory.
REPEATS  := -buildvcs=false -trimpath
SHIM     := containerd-shim-rkt-v1
# The number is early.ServerProgram's.
SERVER   := containerd-shim-rkt-server-1
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)
REPORT    = go -C integration run ./testreport
# Tests that need a static test binary. A binary with the race detector is not static.
STATIC   := ^Test(ExecIntoAnApp|AChildHasNothing|AnIdleProcess)
# Packages whose tests mostly execute other programs, hundreds of them. The race detector
# would find nothing more there, and takes time.
PROGRAMS := stage1/conformance
# Columns of the integration suite: native, oci, nspawn, kvm (after make kvm), runc, crun, runsc, runc-current. native
# also runs the most important cases with nspawn, and oci runs them with crun instead of runc.
RUNTIMES ?= native,oci
# The number of columns, each under one of three releases of containerd, that run at a time.
# They mostly wait.
COLUMNS  := 6
# The cases that run with runsc: those of the short form.
RUNSC    := ^Test(Run|AProgram|Exec(AtA|Life|sLeaveNo)|Pause|KillAll|Update|MetricsOf|AnOOMIsPublished|Hooks(Have|Read)|ContainersOfOne|TheDeathOfTheShim|RktctlDebugsAContainerWithout)

# The architecture of the guest of test-vm. Another one than the machine's has a few suites.
ARCH       ?= $(shell go env GOHOSTARCH)
GUEST_BIN  := $(if $(filter-out $(shell go env GOHOSTARCH),$(ARCH)),$(CURDIR)/.cache/$(ARCH),$(BIN))
QEMU_amd64 := qemu-system-x86
QEMU_arm64 := qemu-system-arm

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

deps: ## install missing Debian packages (as root)
	@scripts/deps

build: ## build the shim, its server, its stage1 images and rktctl, with its man pages, into bin/
	@echo "==> building the shim, its stage1 images and rktctl into bin/"
	@CGO_ENABLED=0 go build $(REPEATS) -ldflags '$(LDFLAGS)' -o '$(BIN)/$(SERVER)' ./cmd/containerd-shim-rkt-server
	@CGO_ENABLED=0 go build $(REPEATS) -ldflags '-s -w' -o '$(BIN)/$(SHIM)' ./cmd/$(SHIM)
	@for s in oci nspawn fly kvm; do ln -sfn $(SHIM) '$(BIN)'/containerd-shim-rkt-$$s-v1; done
	@CGO_ENABLED=0 go build $(REPEATS) -ldflags '-s -w -X main.version=$(VERSION)' -o '$(BIN)/rktctl' ./cmd/rktctl
	@scripts/stage1-images '$(BIN)/stage1'
	@GOARCH='' SOURCE_DATE_EPOCH=$$(scripts/epoch) go run ./cmd/rktctl/pages '$(BIN)/share'

kvm: ## build the stage1 kvm into bin/, and fetch Debian's kernel for its machines into bin/kvm/
	@[ '$(ARCH)' = amd64 ] || { echo "make kvm: virtual machines are for amd64 only, not for $(ARCH): docs/stage1-kvm.md" >&2; exit 1; }
	@scripts/deps lz4 kmod
	@echo "==> building the stage1 kvm into bin/"
	@scripts/stage1-images '$(BIN)/stage1' kvm
	@echo "==> making the kernel of machines in bin/kvm/"
	@go run ./stage1/images/kvm/machine/kernel '$(BIN)/kvm'

check: ## gofmt, go vet and shellcheck
	@scripts/check

lint: check ## the same, golangci-lint where it is installed, and govulncheck
	@scripts/vulncheck
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./... && cd integration && golangci-lint run ./...; \
	else echo "==> golangci-lint is not installed: not run"; fi

# Each of these waits for much of its time, for timers and for other processes, so they run in
# parallel. Those that wait most come first.
test: deps check build ## everything that CI runs
	@$(MAKE) --no-print-directory -k -j5 $(INTEGRATION) test-unit test-vm-short test-kit test-release test-kvm-short

test-unit: ## unit tests, with the race detector
	@echo "==> unit tests"
	@go test -race -timeout 60m -json $$(go list ./... | grep -v '$(PROGRAMS)') | $(REPORT)

test-kit: ## the tests of the authors' kit, and others that the race detector cannot run
	@echo "==> the kit's tests"
	@{ CGO_ENABLED=0 go test -json -run '$(STATIC)' ./stage1/images/native/container ./stage1/images/native/fork || failed=1; \
	go test -timeout 60m -json ./$(PROGRAMS)/... || failed=1; exit $${failed:-0}; } | $(REPORT)

test-release: ## a release for both architectures, twice: the same bytes, and the inventory's files
	@echo "==> a release, twice"
	@go -C integration/release test -count=1 -timeout 60m -json ./... | $(REPORT)

# The suite's own package runs one case at a time, most of which wait, so two processes share its cases.
test-integration: ## a real containerd against bin/ (RUNTIMES=native,oci,nspawn,kvm,runc,crun,runsc,runc-current)
	@$(MAKE) --no-print-directory -j3 $(INTEGRATION)

test-integration-a: PICK = -run '^TestA' .
test-integration-other: PICK = -run '^Test[^A]' .
test-integration-packages: PICK = $$(go -C integration list ./... | tail -n +2)
$(INTEGRATION): test-integration-%: build
	@echo "==> integration tests ($(RUNTIMES), part $*)"
	@RKT_TEST_RUNTIMES=$(RUNTIMES) RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -parallel $(COLUMNS) -timeout 60m -json -skip "$$(go -C integration run ./rktcompat -left-out)" $(PICK) | $(REPORT)

test-runsc: deps build ## the stage1 oci with gVisor's runsc, which is built first (minutes)
	@echo "==> the stage1 oci with runsc"
	@runsc=$$(go -C integration run ./runsc) && { RKT_TEST_RUNSC=$$runsc go test -count=1 -json -run Runsc ./$(PROGRAMS) && \
	RKT_TEST_RUNTIMES=runsc RKT_TEST_RELEASES=2.4 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -timeout 30m -json -run '$(RUNSC)' .; } | $(REPORT)

test-long: build ## the cases that repeat something, at full length (an hour)
	@RKT_TEST_LONG=1 RKT_TEST_RUNTIMES=native RKT_TEST_RELEASES=2.4 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -timeout 3h -json . -outage 1m -fuzz-rpcs 10m | $(REPORT)

test-fuzz: ## every fuzz target for FUZZTIME (2m) (FUZZ=REGEXP)
	@scripts/fuzz

test-hostile: deps build ## containers that attack, against us, runc and older releases, into docs/ (100 minutes)
	@echo "==> hostile neighbours"
	@RKT_TEST_LONG=1 RKT_TEST_BIN='$(BIN)' RKT_TEST_DOCUMENT='$(CURDIR)/docs/results/hostile.md' \
	go -C integration test -count=1 -parallel $(COLUMNS) -timeout 8h -json $(HOSTILE_FLAGS) ./hostile | $(REPORT)

test-hosts: deps build ## a containerd in odd surroundings, and with one system call denied, by runc and by us, into docs/ (HOSTS_FLAGS)
	@echo "==> odd hosts"
	@RKT_TEST_HOSTS=1 RKT_TEST_BIN='$(BIN)' RKT_TEST_DOCUMENT='$(CURDIR)/docs/results/hosts.md' \
	go -C integration test -count=1 -parallel $(COLUMNS) -timeout 60m -json $(HOSTS_FLAGS) ./hosts | $(REPORT)

test-client: deps build ## containerd's own client suite, with runc's shim and ours (CLIENT_FLAGS)
	@go -C integration run ./clientsuite -bin '$(BIN)' -document '$(CURDIR)/docs/results/parity.md' -answers '$(CURDIR)/integration/rpcs/runc.json' $(CLIENT_FLAGS)

test-oci: deps build ## the OCI runtime spec, by runtime-tools, with runc and us (OCI_FLAGS)
	@go -C integration run ./ocisuite -bin '$(BIN)' -document '$(CURDIR)/docs/results/oci.md' $(OCI_FLAGS)

test-cri: deps build ## pods through CRI, by runc and by us, feature by feature (CRI_FLAGS)
	@RKT_TEST_EVERY_STAGE1=1 RKT_TEST_BIN='$(BIN)' RKT_TEST_DOCUMENT='$(CURDIR)/docs/results/kubernetes.md' \
	go -C integration test -count=1 -timeout 40m -json $(CRI_FLAGS) ./cri/... | $(REPORT)

test-critest: deps build ## critest, the CRI tools' validation suite, by runc and by us (CRITEST_FLAGS)
	@go -C integration run ./crisuites -suite critest -bin '$(BIN)' -document '$(CURDIR)/docs/results/kubernetes.md' $(CRITEST_FLAGS)

test-containerd-cri: deps build ## containerd's own suite of CRI, by runc and by us (CRI_SUITE_FLAGS)
	@go -C integration run ./crisuites -suite containerd -bin '$(BIN)' -document '$(CURDIR)/docs/results/kubernetes.md' $(CRI_SUITE_FLAGS)

test-kubelet: deps build ## static pods of a real kubelet, by runc and by us (KUBELET_FLAGS)
	@echo "==> static pods of a real kubelet"
	@RKT_TEST_KUBELET=1 RKT_TEST_BIN='$(BIN)' go -C integration test -count=1 -timeout 40m -json $(KUBELET_FLAGS) ./kubelet | $(REPORT)

test-docker: deps build ## a real dockerd and docker, on a bridge of their own (DOCKER_FLAGS)
	@RKT_TEST_DOCKER=1 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -timeout 30m -json $(DOCKER_FLAGS) ./docker | $(REPORT)

test-buildkit: deps build ## BuildKit with a containerd worker, and containerd-stress, by runc and by us (BUILDKIT_FLAGS)
	@echo "==> BuildKit and containerd-stress"
	@RKT_TEST_BUILDKIT=1 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -timeout 30m -json $(BUILDKIT_FLAGS) ./clients | $(REPORT)

test-vm: build ## cgroup v2 and systemd, in a guest (QEMU) (VM_FLAGS, ARCH=arm64)
	@echo "==> tests in a guest with systemd and cgroup v2, on $(ARCH)"
	@scripts/deps debootstrap e2fsprogs kmod $(QEMU_$(ARCH))
	@[ '$(GUEST_BIN)' = '$(BIN)' ] || GOARCH=$(ARCH) $(MAKE) --no-print-directory build BIN='$(GUEST_BIN)'
	@go -C integration run ./vm -arch $(ARCH) -bin '$(GUEST_BIN)' $(VM_FLAGS) | $(REPORT)

test-vm-short: override VM_FLAGS += -short
test-vm-short: test-vm ## the part of test-vm that make test runs, in minutes

test-kvm: build kvm ## virtual machines: tests that boot QEMU (KVM_FLAGS)
	@echo "==> tests that boot machines"
	@scripts/deps $(QEMU_$(ARCH))
	@RKT_TEST_KVM='$(BIN)/kvm' CGO_ENABLED=0 go test -count=1 -timeout 60m -json $(KVM_FLAGS) ./stage1/images/kvm/... | $(REPORT)
	@RKT_TEST_SAVED=1 RKT_TEST_RUNTIMES=kvm RKT_TEST_RELEASES=2.4 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -parallel 1 -timeout 60m -json -run "$$(sed -n '/^func ofMachines/,/^}/s/.*"\(Test.*\)",/^\1$$/p' integration/kvm_test.go | paste -sd '|')" . | $(REPORT)
	@RKT_TEST_RUNTIMES=kvm RKT_TEST_BIN='$(BIN)' go -C integration test -count=1 -timeout 30m -json -run PodsOfMachines ./cri | $(REPORT)
	@RKT_TEST_KVM='$(BIN)/kvm' go -C integration/release test -count=1 -timeout 30m -json -run PackagesOfMachines ./... | $(REPORT)

# The other tests compare what is in bin/, so this makes a bin/ of its own.
test-kvm-short: build ## the part of test-kvm that make test runs: a machine that boots and one that is restored, on amd64
	@[ '$(ARCH)' = amd64 ] || exit 0; \
	scripts/deps $(QEMU_$(ARCH)) && dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && cp -a '$(BIN)/.' "$$dir" || exit; \
	$(MAKE) --no-print-directory kvm BIN="$$dir" || { echo '==> skipped: machines, which have no kernel'; exit 0; }; \
	RKT_TEST_SAVED=1 RKT_TEST_RUNTIMES=kvm RKT_TEST_RELEASES=2.4 RKT_TEST_BIN="$$dir" \
	go -C integration test -count=1 -parallel 1 -timeout 30m -json -run '^(TestAMachine|TestContainersOfOneGroupShareAShim)$$' . | $(REPORT)

test-kvm-client: deps build kvm ## containerd's own client suite, with runc's shim and with machines (CLIENT_FLAGS)
	@scripts/deps $(QEMU_$(ARCH))
	@go -C integration run ./clientsuite -bin '$(BIN)' -columns runc,kvm -timeout 3h -document '$(CURDIR)/docs/results/parity-kvm.md' $(CLIENT_FLAGS)

test-kvm-hostile: deps build kvm ## containers that attack in a machine, each race for half a minute, into docs/ (HOSTILE_FLAGS)
	@scripts/deps $(QEMU_$(ARCH))
	@echo "==> hostile neighbours in machines"
	@RKT_TEST_RUNTIMES=kvm RKT_TEST_LONG=1 RKT_TEST_HOSTILE_SECONDS=$${RKT_TEST_HOSTILE_SECONDS:-30} RKT_TEST_BIN='$(BIN)' \
	RKT_TEST_DOCUMENT='$(CURDIR)/docs/results/hostile-kvm.md' \
	go -C integration test -count=1 -parallel 1 -timeout 4h -json $(HOSTILE_FLAGS) ./hostile | $(REPORT)

test-kvm-kit: build kvm ## the kit's checks of the stage1 kvm, into docs/
	@scripts/deps $(QEMU_$(ARCH))
	@echo "==> the kit's checks of the stage1 kvm"
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && scripts/emulated '$(BIN)' "$$dir/kvm" && \
	go run ./stage1/conformance/compat -rktctl '$(BIN)/rktctl' -document docs/results/stage1-compat.md -mark kit-kvm -timeout 15m "$$dir/kvm"

test-kvm-critest: deps build kvm ## critest, by runc and with machines in both modes (CRITEST_FLAGS)
	@scripts/deps $(QEMU_$(ARCH))
	@go -C integration run ./crisuites -suite critest -bin '$(BIN)' -columns runc,kvm,kvm-shim -timeout 6h -document '$(CURDIR)/docs/results/kubernetes.md' $(CRITEST_FLAGS)

test-kvm-docker: deps build kvm ## a real dockerd and docker, with machines (DOCKER_FLAGS)
	@scripts/deps $(QEMU_$(ARCH))
	@RKT_TEST_RUNTIMES=kvm RKT_TEST_DOCKER=1 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -timeout 2h -json $(DOCKER_FLAGS) ./docker | $(REPORT)

compat: deps build ## the kit's results for the bundled stage1s, and the suite of rkt's images, into docs/
	@go run ./stage1/conformance/compat -rktctl '$(BIN)/rktctl' -document docs/results/stage1-compat.md $(foreach s,native oci nspawn fly,'$(BIN)/stage1/$(s)') guide
	@$(MAKE) --no-print-directory test-rkt

test-rkt: build ## rkt's interface versions 1 to 6 and images, every call and feature, into docs/
	@echo "==> rkt's interface versions and images (five minutes)"
	@RKT_TEST_RUNTIMES=native RKT_TEST_RELEASES=2.4 RKT_TEST_BIN='$(BIN)' \
	go -C integration test -count=1 -parallel $(COLUMNS) -timeout 60m -json -run "$$(go -C integration run ./rktcompat -tests)" . | \
	go -C integration run ./rktcompat -document '$(CURDIR)/docs/results/stage1-compat.md'

bench: deps build ## compare with runc's shim and the last recorded run (BENCH_FLAGS, BENCH_JSON=FILE, BENCH_RECORD=1)
	@go -C integration run ./bench -bin '$(BIN)' -base '$(CURDIR)/docs/results/performance.json' \
		-json '$(abspath $(if $(BENCH_RECORD),docs/results/performance.json,$(BENCH_JSON)))' \
		$(if $(BENCH_RECORD),-document '$(CURDIR)/docs/results/performance.md') $(BENCH_FLAGS)
	@$(if $(BENCH_RECORD),go -C integration run ./pictures)

bench-kvm: deps build kvm ## compare machines of the stage1 kvm with bare boots, by TCG (BENCH_FLAGS, BENCH_JSON=FILE, BENCH_RECORD=1)
	@scripts/deps $(QEMU_amd64) e2fsprogs
	@go -C integration run ./bench -machines -bin '$(BIN)' -json '$(abspath $(if $(BENCH_RECORD),docs/results/kvm.json,$(BENCH_JSON)))' \
		$(if $(BENCH_RECORD),-document '$(CURDIR)/docs/results/kvm.md') $(BENCH_FLAGS)

demo: deps build ## run a container in a private containerd, and print its output
	@go -C integration run ./demo -bin '$(BIN)'

install: build ## install below PREFIX (/usr/local) and DESTDIR
	@scripts/install '$(BIN)' '$(DESTDIR)$(PREFIX)'

uninstall: ## remove what make install has installed below PREFIX and DESTDIR
	@RKT_DATA_DIR="$${RKT_DATA_DIR:-$(DESTDIR)/var/lib/rkt}" scripts/uninstall '$(DESTDIR)$(PREFIX)'

release: ## tarballs, packages, SBOMs and their sums, for ARCHES (amd64 arm64), into DIST (dist/)
	@VERSION=$(VERSION) REVISION=$(REVISION) scripts/release '$(DIST)'

release-kvm: ## the deb and the rpm of virtual machines, with Debian's kernel, for amd64, into DIST, after release
	@VERSION=$(VERSION) REVISION=$(REVISION) scripts/release-kvm '$(DIST)'

clean: ## remove bin/ and dist/
	rm -rf '$(BIN)' '$(DIST)'
