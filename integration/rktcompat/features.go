package main

import "fmt"

// kind is that of an image, and has tests of its own.
type kind int

const (
	immutable kind = iota // written to the guide, one container in a pod
	mutable               // written to the guide, pods that get containers while they run
	rktsFly               // rkt 1.30's own
	rktsNspawn
)

// column is an image.
type column struct {
	name string
	kind kind
	path string // of its case, below the test's name
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

// feature is what clients want, with the test that shows it for each kind of image.
type feature struct {
	name  string
	tests [4]string
	// refused says that the test of an immutable image shows a refusal.
	refused bool
}

func (f feature) test(c column) string { return f.tests[c.kind] }

const (
	flyServes    = "TestRktsFlyServesEveryCall"
	nspawnServes = "TestRktsNspawnServesEveryCall"
	nspawnMany   = "TestAPodOfRktsNspawnHasManyContainers"
)

var features = []feature{
	{name: "Create, Start, Wait, Delete; exit codes", tests: [4]string{
		"TestAnImmutableImageOfRktsRunsAContainer", "TestAMutableImageOfRktsRunsAContainer", "TestRktsFlyRunsAContainer", "TestRktsNspawnRunsAContainer"}},
	{name: "Kill; an exit told from a signal", tests: [4]string{
		"TestAnExitIsToldFromASignal", "TestSignalsOfAMutablePodGoToTheProgram", flyServes, nspawnServes}},
	{name: "the streams, and the end of the input (CloseIO)", tests: [4]string{
		"TestStreamsOfAnImmutableImage", "TestStreamsOfAMutableImage", "TestRktsFlyRunsAContainer", "TestStreamsOfRktsNspawn"}},
	{name: "a terminal, ResizePty", tests: [4]string{
		"TestATerminalOfAnImmutableImage", "TestATerminalOfAMutableImage", "TestATerminalOfRktsFly", "TestATerminalOfRktsNspawn"}},
	{name: "Exec", tests: [4]string{
		"TestAnExecInAnImmutableImage", "TestAnExecInAMutablePod", flyServes, nspawnServes}},
	{name: "State, Pids, Pause, Resume, Update, Stats", tests: [4]string{
		"", "TestAnAppIsInItsOwnCgroup", flyServes, nspawnServes}},
	{name: "Checkpoint, hooks: refused by name", tests: [4]string{
		"", "", flyServes, nspawnServes}},
	{name: "the arguments, environment and files of the version", tests: [4]string{
		"TestRunGetsTheArgumentsOfItsVersionAndNoOthers", "TestAppsComeAndGoInAPodOfRkts", "", ""}},
	{name: "user, groups, isolators in the manifest", tests: [4]string{
		"TestThePodManifestSaysWhatTheSpecAsksFor", "", "TestRktsFlyRunsAContainer", "TestRktsNspawnRunsAContainer"}},
	{name: "volumes", tests: [4]string{
		"TestThePodManifestSaysWhatTheSpecAsksFor", "TestVolumesAreThereBeforeTheApp", "TestRktsFlyLeavesTheHostsTreesAlone", nspawnMany}},
	{name: "what appc cannot say is refused by name", tests: [4]string{
		"TestWhatAppcCannotSayIsRefusedByName", "", "", ""}},
	{name: "a program that is not there", tests: [4]string{
		"TestAProgramThatIsNotThereFailsCreate", "TestAProgramThatIsNotThereInAMutablePod", "TestRktsFlyRunsAContainer", "TestRktsNspawnRunsAContainer"}},
	{name: "a `run` that fails says why", tests: [4]string{
		"", "TestAPodWhoseRunFailsSaysSo", "", ""}},
	{name: "a failed app/add is rolled back", tests: [4]string{
		"", "TestAFailedAddIsRolledBack", "", ""}},
	{name: "several containers in a pod", refused: true, tests: [4]string{
		"TestAnImmutablePodHasOneContainer", "TestAppsComeAndGoInAPodOfRkts", "", nspawnMany}},
	{name: "the end of the pod is that of its containers", tests: [4]string{
		"", "TestTheEndOfAMutablePodIsThatOfItsApps", "", ""}},
	{name: "`delete` after the death of the shim", tests: [4]string{
		"TestNothingOfAnImmutablePodOutlivesItsShim", "TestNothingOfAMutablePodOutlivesItsShim", flyServes, nspawnServes}},
}
