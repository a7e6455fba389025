package main

import (
	"fmt"
	"strings"
)

// kind is the kind of an image. Each kind has tests of its own.
type kind int

const (
	immutable kind = iota // follows the guide, one container in a pod
	mutable               // follows the guide, containers are added to running pods
	rktsFly               // rkt 1.30's own
	rktsNspawn
)

// column is an image in the table.
type column struct {
	name string
	kind kind
	path string // the path of its case, after the test's name
}

var columns = func() []column {
	var all []column
	for v := 1; v <= 6; v++ {
		all = append(all, column{fmt.Sprint(v), immutable, fmt.Sprintf("/native/version_%d", v)})
	}
	for v := 5; v <= 6; v++ {
		all = append(all, column{fmt.Sprintf("%d, mutable", v), mutable, fmt.Sprintf("/native/version_%d_mutable", v)})
	}
	for _, flavor := range []string{"fly", "host", "src", "coreos"} {
		k := rktsNspawn
		if flavor == "fly" {
			k = rktsFly
		}
		all = append(all, column{"rkt's `" + flavor + "`", k, "/native/" + flavor})
	}
	return all
}()

// feature is a row of the table: a feature that clients use, with the tests for each kind of
// image.
type feature struct {
	name string
	// tests are the names of the tests. A name may have a slash and the name of a case below
	// the column's.
	tests [4]string
	// why is the text of a cell without a test. It says why such an image cannot have the
	// feature.
	why [4]string
	// refused are the kinds for which the test shows that the feature is refused.
	refused [4]bool
	// but replaces "yes" in the columns in which the test shows only a part of the feature.
	but map[string]string
}

func (f feature) of(k kind) (test, below string) {
	test, below, found := strings.Cut(f.tests[k], "/")
	if found {
		below = "/" + strings.ReplaceAll(below, " ", "_")
	}
	return test, below
}

// served are the tests that send every call to a running container.
var served = [4]string{"TestImagesOfRktsServeEveryCall", "TestImagesOfRktsServeEveryCall", "TestRktsFlyServesEveryCall", "TestRktsNspawnServesEveryCall"}

// below returns the names of a case of some tests.
func below(tests [4]string, name string) [4]string {
	for i := range tests {
		tests[i] += "/" + name
	}
	return tests
}

// calls returns the features that are calls of the Task service.
func calls() (all []feature) {
	for _, c := range []string{
		"Create", "Start", "State", "Wait", "Connect", "Pids", "Pause", "Resume", "Update", "Stats", "Exec", "CloseIO", "Kill", "Kill of an exec", "Kill of all", "Delete", "Shutdown",
	} {
		all = append(all, feature{name: c, tests: below(served, c)})
	}
	return append(all,
		feature{name: "Checkpoint", tests: below(served, "Checkpoint"), refused: [4]bool{true, true, true, true}},
		feature{name: "events, complete and in order", tests: below(served, "events")})
}

const (
	flyRuns    = "TestRktsFlyRunsAContainer"
	nspawnRuns = "TestRktsNspawnRunsAContainer"
	nspawnMany = "TestAPodOfRktsNspawnHasManyContainers"

	noAdd  = "no app/add"
	itself = "by itself"        // it refuses unknown arguments itself
	never  = "nothing fails it" // no test can make it fail
)

var features = append(calls(), []feature{
	{name: "exit codes", tests: [4]string{
		"TestAnImmutableImageOfRktsRunsAContainer", "TestAMutableImageOfRktsRunsAContainer", flyRuns, nspawnRuns}},
	{name: "an exit told from a signal", tests: [4]string{
		"TestAnExitIsToldFromASignal", "TestSignalsOfAMutablePodGoToTheProgram", flyRuns, nspawnRuns}},
	{name: "the streams, and the end of the input", tests: [4]string{
		"TestStreamsOfAnImmutableImage", "TestStreamsOfAMutableImage", flyRuns, "TestStreamsOfRktsNspawn"},
		but: map[string]string{"6, mutable": "without that end"}},
	{name: "a terminal, ResizePty", tests: [4]string{
		"TestATerminalOfAnImmutableImage", "TestATerminalOfAMutableImage", "TestATerminalOfRktsFly", "TestATerminalOfRktsNspawn"},
		but: map[string]string{"5, mutable": "without its size"}},
	{name: "Exec, as the container is", tests: [4]string{
		"TestAnExecInAnImmutableImage", "TestAnExecInAMutablePod", served[rktsFly] + "/Exec", served[rktsNspawn] + "/Exec"}},
	{name: "the arguments, environment and files of the version", tests: [4]string{
		"TestRunGetsTheArgumentsOfItsVersionAndNoOthers", "TestAppsComeAndGoInAPodOfRkts", "", ""}, why: [4]string{"", "", itself, itself}},
	{name: "user, groups, isolators in the manifest", tests: [4]string{
		"TestThePodManifestSaysWhatTheSpecAsksFor", "TestThePodManifestSaysWhatTheSpecAsksFor", flyRuns, nspawnRuns}},
	{name: "volumes", tests: [4]string{
		"TestThePodManifestSaysWhatTheSpecAsksFor", "TestVolumesAreThereBeforeTheApp", "TestRktsFlyLeavesTheHostsTreesAlone", nspawnMany}},
	{name: "what appc cannot say is refused by name, unless it is excused", tests: [4]string{
		"TestWhatAppcCannotSayIsRefusedByName", "TestWhatAppcCannotSayIsRefusedByName", flyRuns + "/unsaid", nspawnRuns + "/unsaid"}},
	{name: "a program that is not there fails Create", tests: [4]string{
		"TestAProgramThatIsNotThereFailsCreate", "TestAProgramThatIsNotThereFailsCreate", flyRuns, nspawnRuns}},
	{name: "a `run` that fails says why", tests: [4]string{
		"TestAPodWhoseRunFailsSaysSo", "TestAPodWhoseRunFailsSaysSo", "", ""}, why: [4]string{"", "", never, never}},
	{name: "a failed app/add is rolled back", tests: [4]string{
		"", "TestAFailedAddIsRolledBack", "", ""}, why: [4]string{noAdd, "", noAdd, never}},
	{name: "several containers in a pod", tests: [4]string{
		"TestAnImmutablePodHasOneContainer", "TestAppsComeAndGoInAPodOfRkts", "TestAPodOfRktsFlyHasOneContainer", nspawnMany}, refused: [4]bool{immutable: true, rktsFly: true}},
	{name: "the death of `run` ends the container, with all in it", tests: [4]string{
		"TestTheEndOfRunIsThatOfTheContainer", "TestTheEndOfRunIsThatOfTheContainer", served[rktsFly] + "/death of run", served[rktsNspawn] + "/death of run"}},
	{name: "`delete` after the death of the shim", tests: [4]string{
		"TestNothingOfAnImmutablePodOutlivesItsShim", "TestNothingOfAMutablePodOutlivesItsShim", served[rktsFly] + "/death of the shim", served[rktsNspawn] + "/death of the shim"}},
	{name: "programs that an app has written are not executed", tests: [4]string{
		written, written, "TestNoProgramThatAnAppOfRktsOwnImagesHasWrittenIsExecuted", "TestNoProgramThatAnAppOfRktsOwnImagesHasWrittenIsExecuted"}},
}...)

const written = "TestNoProgramThatAnAppOfRktsHasWrittenIsExecuted"

// kept are the tests that `make test` runs, too: one container of each kind of image, in every
// version.
var kept = []string{
	"TestAnImmutableImageOfRktsRunsAContainer", "TestAMutableImageOfRktsRunsAContainer", flyRuns, nspawnRuns, bundledRun,
}

const bundledRun = "TestBundledImagesRunContainersByTheRktABI"

// others are the tests without a row.
var others = []string{
	bundledRun,
	"TestAPodThatIsNoSandboxIsRefusedAndLeavesNothing",
	"TestAProgramThatIsNotThereInAMutablePod",
	"TestAnAppIsInItsOwnCgroup",
	"TestAnExecOfRktsIsKilled",
	"TestBundledImagesHaveTerminalsByTheRktABI",
	"TestImagesOfRktsAnswerInEveryState",
	"TestNoLinkOfAnAppLeadsRktsProgramsToTheHost",
	"TestNothingOfAPodOfRktsNspawnOutlivesItsSupervisor",
	"TestPodsOfKubernetesInAMutableImage",
	"TestRktsFlyAnswersInEveryState",
	"TestRktsNspawnAnswersInEveryState",
	"TestTheEndOfAMutablePodIsThatOfItsApps",
}
