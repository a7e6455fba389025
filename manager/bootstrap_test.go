package manager

import (
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// requirements.md#B17
func TestTheShimsCgroupIsAlwaysBelowTheRoot(t *testing.T) {
	if got := inCgroup("/sys/fs/cgroup/pids", "../../../etc"); got != "/sys/fs/cgroup/pids/etc" {
		t.Errorf("the path leads to %s", got)
	}
}

// requirements.md#R3
func TestOnlyAContainerdKnownToKeepEndedTasksIsTakenForOne(t *testing.T) {
	for version, drops := range map[string]bool{
		"": true, "1.7.35": true, "v2.3.9": true, "2.3.0-rc.1": true, "unknown": true, "2": true, "2.x": true,
		"2.4.2+unknown": false, "v2.4.0": false, "2.10.1": false, "3.0": false,
	} {
		if b := (&Bootstrap{Handover: early.Handover{ContainerdVersion: version}}); b.DropsEnded() != drops {
			t.Errorf("%q: %v, want %v", version, !drops, drops)
		}
	}
}
