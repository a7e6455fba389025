package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inShort are the cases that run with nspawn when nspawn is not a column of its own: those
// about features that nspawn implements differently from native, whose code it shares for the
// rest. They also run with oci and another OCI runtime than runc.
func inShort() []string {
	return []string{
		"TestRunReturnsTheExitCodeOfTheProgram",
		"TestRunReturns128PlusTheSignalThatEndedTheProgram",
		"TestRunHandsStdinToTheProgramUpToItsEnd",
		"TestAProgramThatCannotBeExecutedFailsCreateAndLeavesNothing",
		"TestRunAtATerminal",
		"TestExecAtATerminal",
		"TestExecLifecycle",
		"TestPauseAndResume",
		"TestKillAllReachesEveryProcessWithAnySignal",
		"TestUpdate",
		"TestMetricsOfARunningAndOfADeletedTask",
		"TestAnOOMIsPublishedBeforeTheExitThatItCaused",
		"TestHooksReadTheState",
		"TestContainersOfOneGroupShareAShim",
		"TestASandboxRunsContainersWithoutAPauseContainer",
		"TestTheHolderHasNothing",
		"TestTheDeathOfTheShimLeavesNothingAndTellsTrueExitCodes",
		"TestRktctlDebugsAContainerWithoutAShell",
	}
}

func TestTheCasesOfTheShortFormAreThere(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Skipf("the sources are not here (%v)", err)
	}
	var sources []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, string(b))
	}
	for _, name := range append(inShort(), ofMachines()...) {
		if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, "\nfunc "+name+"(t *testing.T) {") }) {
			t.Errorf("there is no case %s", name)
		}
	}
}
