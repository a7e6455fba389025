package main

import (
	"slices"
	"strings"
)

// testSuite is a package whose tests run in the guest.
type testSuite struct {
	name  string // its directory in the tree and in the payload
	run   string // pattern of the tests
	short string // the same for the short form; "" if it is no part of that
	args  string // more arguments
}

// needsVersion1 selects tests that have nothing to test here, by their names.
const needsVersion1 = `OnVersion1|/version_1`

// limitsOfApps selects the cases of package pod: what it does with cgroups, and not
// how it keeps its directories.
const limitsOfApps = `Pause|Resume|SIGKILLEnds|KillAll|UpdateIs|ToldAndMay|Stats|ResourcesThat|OOM|Watches|NotRecorded|OrdinaryBundles|LivingShims` +
	`|DiesAtAnyStep|LimitOfProcesses`

// touchCgroups selects the cases of the integration suite. What a `delete` does when a
// shim has died is not among them: containerd gives it five seconds, whatever the
// machine. Package pod's cases of it have no clock.
const touchCgroups = `PauseAndResume|PauseIn|KillAll|DiesOfWhatKills|TestUpdate|AnUpdateThat|Metrics|CgroupsOfItsOwn|BelowACgroup|ScopeOfSystemds` +
	`|OOM|MemoryLimit|CPUShares|Devices|LimitOfProcesses` +
	`|Nspawn|TaskExecRuns|TaskKill|APausedTaskCan|ProcAndSysAreMasked|Privileged|EndsEverything|SandboxOfCRI`

// oneOfEach selects one case for each thing that is another one on version 2, or
// where systemd runs: membership and scopes, limits, their changes, statistics,
// devices, the freezer, OOM, the number of processes, killing, and what systemd-nspawn
// leaves.
const oneOfEach = `NspawnMakes|CgroupsOfItsOwn|BelowACgroup|ScopeOfSystemds|TestUpdate|MetricsOf|OnlyDevices|PauseAndResume` +
	`|AnOOMIsPublished|LimitOfProcesses|TaskKillAll`

// pods selects the features of pods: all of them with systemd's cgroups, which are
// what a kubelet uses where systemd runs, and with the kubelet's own those that have
// to do with cgroups.
const pods = `TestFeatures/-systemd$|TestFeatures/^(runc|rkt|rkt-shim|nspawn|nspawn-shim)$/^(Users|Resources|Cgroups)`

// podsOfEach selects, for either driver of cgroups and either way to a pod, the limits
// of a pod and cgroups that a user namespace has below its own.
const podsOfEach = `TestFeatures/^(rkt|rkt-shim-systemd)$/^Cgroups/(what_a_pod_may_have|user_namespace)`

func allSuites() []testSuite {
	return []testSuite{
		{name: "pod/cgroup", run: ".", short: "."},
		{name: "stage1/images/native", run: "Cgroup", short: "Cgroup"},
		{name: "stage1/images/native/fork", run: "Cgroup|Frozen", short: "Cgroup"},
		{name: "stage1/images/native/container", run: "Cgroup", short: "Cgroup"},
		{name: "stage1/images/nspawn", run: "CloneWouldHaveLeft|NotAskedFor|PIDNamespace|HooksSee", short: "CloneWouldHaveLeft"},
		{name: "pod", run: limitsOfApps, short: "ResourcesThat|OOM|Watches"},
		{name: "integration", run: touchCgroups, short: oneOfEach},
		{name: "integration/cri", run: pods, short: podsOfEach},
	}
}

// dir is the directory of the package, from that of this module.
func (s testSuite) dir() string {
	if below, ok := strings.CutPrefix(s.name+"/", "integration/"); ok {
		return "./" + below
	}
	return "../" + s.name
}

// selection is what somebody wants to be run.
type selection struct {
	short bool
	suite string // "": all
	run   string // "": what the suite says
	args  string
}

// suites returns what is to be run. Of a package that is no suite by itself that is
// everything, and nothing in the short form.
func (s selection) suites() []testSuite {
	list := allSuites()
	if s.suite != "" {
		list = slices.DeleteFunc(list, func(t testSuite) bool { return t.name != s.suite })
		if len(list) == 0 {
			list = []testSuite{{name: s.suite, run: "."}}
		}
	}
	for i := range list {
		t := &list[i]
		t.args = s.args
		if s.short {
			t.run, t.args = t.short, strings.TrimSpace("-test.short "+s.args)
		}
		if s.run != "" {
			t.run = s.run
		}
	}
	return slices.DeleteFunc(list, func(t testSuite) bool { return t.run == "" })
}
