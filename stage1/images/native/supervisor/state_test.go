package supervisor

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func hook(script string) specs.Hook {
	return specs.Hook{Path: busybox, Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin"}}
}

func TestOnlyTheseStepsAreLegal(t *testing.T) {
	legal := map[state]map[step]state{
		adding:   {stepReady: added, stepFail: removed},
		added:    {stepStart: starting, stepExit: ended},
		starting: {stepExec: running, stepExit: ended},
		running:  {stepExit: ended},
		ended:    {stepRemove: removed},
	}
	for s := adding; s <= removed; s++ {
		for step := stepReady; step <= stepFail; step++ {
			want, ok := legal[s][step]
			if !ok {
				want = s
			}
			if got, allowed := s.next(step); allowed != ok || got != want {
				t.Errorf("%s of %s: %s, %v, want %s, %v", step, s, got, allowed, want, ok)
			}
		}
	}
}

func TestACgroupBelowTheAppsIsFound(t *testing.T) {
	for _, c := range []struct{ dir, path, want string }{
		{"/sys/fs/cgroup/pod/app", "/pod/app", "/sys/fs/cgroup/pod/app"},
		{"/sys/fs/cgroup/pod/app", "/pod/app/init.scope", "/sys/fs/cgroup/pod/app/init.scope"},
		{"/sys/fs/cgroup/unified/app", "/app/a/b", "/sys/fs/cgroup/unified/app/a/b"},
		{"/sys/fs/cgroup/pod/app", "/other", ""},
		{"/sys/fs/cgroup/pod/app", "/", ""},
		{"/sys/fs/cgroup/pod/app", "/../app", ""},
	} {
		if got, ok := within(c.dir, c.path); got != c.want || ok != (c.want != "") {
			t.Errorf("%s in %s: %q, %v, want %q", c.path, c.dir, got, ok, c.want)
		}
	}
}
