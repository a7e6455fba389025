package pod

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestOnlyVersionsOneOfTheSpecAreTaken(t *testing.T) {
	for version, is := range map[string]func(error) bool{
		"1.0.0": nil, "1.3.0": nil, "1.99.1": nil, "1.2.0-rc.1+dev": nil, "1.0.0-rc5": nil, "1.1.0+dev": nil,
		"":         errdefs.IsInvalidArgument,
		"abc":      errdefs.IsInvalidArgument,
		"1":        errdefs.IsInvalidArgument,
		"1.2":      errdefs.IsInvalidArgument,
		"v1.2.0":   errdefs.IsInvalidArgument,
		"1.02.0":   errdefs.IsInvalidArgument,
		"1.2.0-":   errdefs.IsInvalidArgument,
		"1.2.0-ä":  errdefs.IsInvalidArgument,
		"1.2.0.1":  errdefs.IsInvalidArgument,
		" 1.2.0":   errdefs.IsInvalidArgument,
		"0.1.0":    errdefs.IsNotImplemented,
		"2.0.0":    errdefs.IsNotImplemented,
		"11.0.0":   errdefs.IsNotImplemented,
		"2.0.0-rc": errdefs.IsNotImplemented,
	} {
		err := checkVersion(version)
		if is == nil && err != nil || is != nil && (!is(err) || !strings.Contains(err.Error(), "ociVersion")) {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestASpecOfAnotherVersionIsRefusedBeforeTheStage1IsStarted(t *testing.T) {
	w := newWorld(t)
	_, err := w.createOf("a", `{"ociVersion":"2.0.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}`, false)
	if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "container a: ") || !strings.Contains(err.Error(), `config.json: ociVersion "2.0.0"`) {
		t.Errorf("%v", err)
	}
	if len(w.stage1.calls) > 0 {
		t.Errorf("calls %v", w.stage1.calls)
	}
}
