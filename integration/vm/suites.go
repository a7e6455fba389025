package main

import (
	"slices"
	"strings"
)

// testSuite is a package whose tests run in the guest.
type testSuite struct {
	name  string // its directory in the repository and in the payload
	run   string // pattern of the tests
	short string // pattern for the short form; "" if the suite is not part of it
	args  string // more arguments
	skips int    // the number of tests that it skips in a guest of a foreign architecture
	files string // with blanks between; of the repository that the tests read, besides their testdata
}

// needsVersion1 and needsVersion2 select, by their names, tests that need the version of cgroups that the guest has not.
// Tests of version 1 run with the flag -version1.
const (
	needsVersion1 = `OnVersion1|/version_1`
	needsVersion2 = `OnVersion2|/version_2`
)

// limitsOfApps selects the cases of package pod that use cgroups, without those about
// directories.
const limitsOfApps = `Pause|Resume|SIGKILLEnds|KillAll|UpdateIs|ToldAndMay|Stats|ResourcesThat|OOM|Watches` +
	`|DiesAtAnyStep|LimitOfProcesses|OneCgroup|RelativeCgroupsPath`

// collected selects the cases of package pod/disk that use cgroups.
const collected = `NotRecorded|OrdinaryBundles|LivingShims|DiesAtAnyStep|Cgroup`

// touchCgroups selects the cases of the integration suite. Cases of `delete` after the death of
// a shim are not among them, because containerd gives `delete` five seconds even on a slow
// machine. Package pod has such cases without a time limit.
const touchCgroups = `PauseAndResume|PauseIn|KillAll|DiesOfWhatKills|TestUpdate|AnUpdateThat|Metrics|CgroupsOfItsOwn|BelowACgroup|ScopeOfSystemds|InScopesCount|DriverCgroupfs` +
	`|CgroupsPath|ACgroupOf|OOM|MemoryLimit|CPUShares|Devices|LimitOfProcesses` +
	`|Nspawn|TaskExecRuns|TaskKill|APausedTaskCan|ProcAndSysAreMasked|Privileged|EndsEverything|SandboxOfCRI` +
	`|DebugsAContainerWithout|DebugsAContainerInA|TwoDebugApps` +
	`|IsInARootCgroup|EachLimitInForce|ReachesNoCgroup|CgroupsOfBothVersions|NoMountOfTheHosts|AsTheHostHasMountedIt|ARecursiveBindOf`

// oneOfEach selects one case for each feature that works differently on version 2 or with
// systemd: membership and scopes, limits, their changes, statistics, devices, the freezer, OOM,
// the number of processes, killing, isolation, and the remains of systemd-nspawn. Limits, the freezer,
// statistics, OOM and killing are the shim's, for every stage1, so these cases have one column
// each. The stage1s put processes into cgroups, and allow devices, each in its own way.
const oneOfEach = `NspawnMakes|CgroupsOfItsOwn/native|BelowACgroup/cgroupfs/native|BelowACgroup/systemd/oci|CgroupsPath/oci` +
	`|ScopeOfSystemds|TestUpdate/native|MetricsOf/nspawn|OnlyDevices|PauseAndResume/nspawn|AnOOMIsPublished/native` +
	`|LimitOfProcesses/native|TaskKillAll/oci|ReachesNoCgroup/native`

// pods selects the features of pods: all of them with systemd's cgroups, which a kubelet uses
// if systemd runs, and those about cgroups with the kubelet's own driver.
const pods = `TestFeatures/-systemd$|TestFeatures/^(runc|rkt|rkt-shim|nspawn|nspawn-shim)$/^(Users|Resources|Cgroups)`

// podsOfEach selects the limits of a pod for either driver of cgroups, with and without a pause
// container, and cgroups that a user namespace has below its own.
const podsOfEach = `TestFeatures/^rkt$/^Cgroups/what_a_pod_may_have` +
	`|TestFeatures/^rkt-shim-systemd$/^Cgroups/(what_a_pod_may_have|user_namespace)`

// hostileSituations selects containers that try to reach the host's cgroups and mounts, with runc beside them: those
// to which most ways are open, alone and in a pod.
const hostileSituations = `NothingIsOpenThatRunc/^no_seccomp_profile,_(root|root,_pod|CAP_SYS_ADMIN)$`

func allSuites() []testSuite {
	return []testSuite{
		{name: "pod/cgroup", run: ".", short: "."},
		{name: "stage1/images/native", run: "Cgroup|NoFreePlace", short: "Cgroup"},
		{name: "stage1/images/native/fork", run: "Cgroup|Frozen", short: "Cgroup"},
		{name: "stage1/images/native/container", run: "Cgroup|MountOfTheHost|SharedSuperblocks|InAUserNamespace|InItsUserNamespace|PinnedMountNamespace", short: "Cgroup|MountOfTheHost"},
		{
			name: "stage1/images/nspawn", run: "CloneWouldHaveLeft|NotAskedFor|PIDNamespace|HooksSee|SysfsOfANew", short: "CloneWouldHaveLeft",
			files: "stage1/images/nspawn/features.json stage1/images/native/features.json",
		},
		{name: "proc", run: "ACopyOfMounts|Unbindable", short: "ACopyOfMounts"},
		{name: "shim/mount", run: "PinnedMountNamespace", short: "PinnedMountNamespace"},
		{name: "pod", run: limitsOfApps, short: "ResourcesThat|OOM|Watches"},
		{name: "pod/disk", run: collected, short: "NotRecorded"},
		{name: "integration", run: touchCgroups, short: oneOfEach},
		{name: "integration/cri", run: pods, short: podsOfEach},
		{name: "integration/hostile", run: hostileSituations},
		{name: "integration/packages", run: "Package"},
	}
}

// ofAnotherArchitecture selects the cases of the integration suite for a guest of a foreign architecture: run,
// exec, seccomp, limits and delete of the stage1 native.
const ofAnotherArchitecture = `TestRun(Returns|Separates|UserIs|MemoryLimit)|TaskExecRuns|ExecLifecycle` +
	`|SeccompDefault|TestLimitsAre|TestUpdate$|PauseAndResume|TestTaskDelete`

// thatNeedNoSource selects the tests of package seccomp that read no file of it.
const thatNeedNoSource = `^Test(AProfile|NoProfile|Flags|TheSame|TheUsual|Long|WhatLib|TheKernel|OnlyACall|Random)`

// foreignSuites are those for a guest of another architecture than the machine's: what depends on
// the processor, and one case of each of native's features. Emulation is slow.
func foreignSuites() []testSuite {
	return []testSuite{
		{name: "stage1/images/native/seccomp", run: thatNeedNoSource, skips: 5}, // they compare with libseccomp and runc on amd64
		{name: "stage1/images/native/fork", run: "."},
		{name: "pod/cgroup", run: ".", skips: 5},
		{name: "integration", run: ofAnotherArchitecture},
	}
}

// skips returns the number of tests that each suite must skip, where that is held.
func skips(suites []testSuite) map[string]int {
	held := map[string]int{}
	for _, s := range suites {
		if slices.Contains(foreignSuites(), s) {
			held[s.name] = s.skips
		}
	}
	return held
}

// dir returns the directory of the package, relative to that of this module.
func (s testSuite) dir() string {
	if below, ok := strings.CutPrefix(s.name+"/", "integration/"); ok {
		return "./" + below
	}
	return "../" + s.name
}

// selection is the tests that the user wants to run.
type selection struct {
	foreign bool // the guest has another architecture than the machine
	short   bool
	suite   string // "": all
	run     string // empty: the pattern of the suite
	args    string
}

// suites returns the suites to run. If the user names a package that is no suite, all its
// tests run, except in the short form.
func (s selection) suites() []testSuite {
	list := allSuites()
	if s.foreign {
		list = foreignSuites()
	}
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
