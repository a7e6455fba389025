package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func sh(script string, timeout *int) specs.Hook {
	return specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}, Timeout: timeout}
}

// A hook that prints endlessly would otherwise take memory, up to the app's limit or the host's.
func TestTheOutputOfAHookIsNotKeptInMemory(t *testing.T) {
	out, err := runHook(sh("head -c 200000000 /dev/zero; echo; stat -L -c 'size %s' /proc/self/fd/1; exit 3", nil), nil)
	if err == nil || err.Error() != "exit status 3" || len(out) > maxHookOutput || !strings.HasSuffix(string(out), "\nsize 0\n") {
		t.Errorf("%v, %d bytes: %q", err, len(out), out)
	}
}

func TestAHookEndsWithItsProcess(t *testing.T) {
	here := filepath.Join(t.TempDir(), "here") // until the test ends
	must(t, os.WriteFile(here, nil, 0o600))
	for name, c := range map[string]struct{ script, says, err string }{
		"it succeeds":                           {"cat; echo done", "the state" + "done\n", ""},
		"its output is closed":                  {"exec >&- 2>&-; sleep 0.2; exit 4", "", "exit status 4"},
		"a process that it left writes on":      {"while :; do echo more; done & echo said; exit 5", "", "exit status 5"},
		"a process that it left keeps the pipe": {"while [ -e " + here + " ]; do sleep 0.1; done & echo said; exit 6", "said\n", "exit status 6"},
		"it is killed":                          {"kill -KILL $$", "", "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runHook(sh(c.script, nil), []byte("the state"))
			if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err || c.says != "" && string(out) != c.says {
				t.Errorf("%v: %q", err, out)
			}
		})
	}
	limit := 1
	if out, err := runHook(sh("echo begun; while :; do echo more; done", &limit), nil); err == nil || err.Error() != "did not end within 1 seconds" || len(out) == 0 {
		t.Errorf("a hook with a timeout: %v, %q", err, out)
	}
}
