package image

import (
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestWhatAnImageOwnsNeedsItsEntrypoints(t *testing.T) {
	all := map[abi.Entrypoint]string{abi.AppSignal: "/s", abi.AppStats: "/s"}
	for _, test := range []struct {
		value       string
		entrypoints map[abi.Entrypoint]string
		fault       string // "" is none
	}{
		{"", nil, ""},
		{"resources processes namespaces rootfs", all, ""},
		{"namespaces", nil, ""},
		{"resources", nil, "app/stats"},
		{"processes resources", map[abi.Entrypoint]string{abi.AppStats: "/s"}, "app/signal"},
		{"processes", all, "needs resources"},
		{"resource", all, `"resource" is not one of`},
	} {
		own, err := parseOwn(test.value, test.entrypoints)
		switch {
		case test.fault == "" && (err != nil || len(own) != len(strings.Fields(test.value))):
			t.Errorf("%q: %v, %v", test.value, own, err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%q: %v, want an error with %q", test.value, err, test.fault)
		}
	}
}

func TestOnlyADeclaredGCIsSkipped(t *testing.T) {
	all := map[abi.Entrypoint]string{abi.Run: "/run", abi.GC: "/gc"}
	for value, fault := range map[string]bool{"": false, "gc": false, "run": true, "gc stop": true, "/gc": true} {
		if skipped, err := parseSkip(value, all); (err != nil) != fault || err == nil && len(skipped) != len(strings.Fields(value)) {
			t.Errorf("%q: %v, %v", value, skipped, err)
		}
	}
	if _, err := parseSkip("gc", map[abi.Entrypoint]string{abi.Run: "/run"}); err == nil {
		t.Error("an entrypoint is skipped that the image does not have")
	}
}

func TestOnlyAnImageOfMutablePodsDoesWithoutStage2(t *testing.T) {
	mutable := map[abi.Entrypoint]string{abi.Run: "/run", abi.AppAdd: "/a", abi.AppStart: "/s", abi.AppRm: "/r"}
	for value, want := range map[string]bool{"": false, "opt/stage2": true, "opt/stage2 opt/stage2": true} {
		if without, err := parseWithout(value, mutable); err != nil || without != want {
			t.Errorf("%q: %v, %v", value, without, err)
		}
	}
	for _, value := range []string{"rkt", "/opt/stage2", "opt/stage2 rkt", "gc"} {
		if _, err := parseWithout(value, mutable); err == nil {
			t.Errorf("%q is accepted", value)
		}
	}
	delete(mutable, abi.AppRm)
	if _, err := parseWithout("opt/stage2", mutable); err == nil {
		t.Error("an immutable pod has no directory for the app's manifest")
	}
}

func TestDeadlinesOfAnImageHaveBounds(t *testing.T) {
	limits, err := parseDeadlines("run=2m app/add=90s")
	if err != nil || limits[abi.Run] != 2*time.Minute || limits[abi.AppAdd] != 90*time.Second || len(limits) != 2 {
		t.Errorf("%v, %v", limits, err)
	}
	for _, value := range []string{"run", "run=", "run=1", "run=1h", "run=1ms", "run=-1s", "runs=2m", "=2m"} {
		if limits, err := parseDeadlines(value); err == nil {
			t.Errorf("%q: %v", value, limits)
		}
	}
}
