package disk

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// edit changes fields of a JSON record on disk; a field may be below others, as in
// "supervisor/pid".
func edit(t *testing.T, file string, fields map[string]any) {
	t.Helper()
	var record map[string]any
	decode(t, file, &record)
	for name, value := range fields {
		in := record
		words := strings.Split(name, "/")
		for _, w := range words[:len(words)-1] {
			if in[w] == nil {
				in[w] = map[string]any{}
			}
			in = in[w].(map[string]any)
		}
		in[words[len(words)-1]] = value
	}
	text, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(file, text, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bystander is a process of the host, and a directory that lists it as a cgroup would.
func bystander(t *testing.T) (pid int, dir string) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	dir = filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cgroup.procs", "tasks"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cmd.Process.Pid, dir
}

// A record that was damaged, on the disk or by hand, must not have `delete` kill, unmount
// or remove what is not the container's.
func TestADeleteRefusesDamagedRecordsByNameAndTouchesNothing(t *testing.T) {
	pid, home := bystander(t)
	start, err := proc.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	app := func(f map[string]any) map[string]map[string]any { return map[string]map[string]any{appFile: f} }
	shim := func(f map[string]any) map[string]map[string]any { return map[string]map[string]any{shimFile: f} }
	bundle := func(f map[string]any) map[string]map[string]any {
		return map[string]map[string]any{bundleFile: f}
	}
	for name, c := range map[string]struct {
		edits map[string]map[string]any
		words string // in the error, beside the file's name
	}{
		"a cgroup that is a directory of the host": {
			app(map[string]any{"cgroup": map[string]any{"version": 1, "path": "/home", "dirs": map[string]string{"devices": home}}}), home,
		},
		"a cgroup of version 2 that is none": {
			app(map[string]any{"cgroup": map[string]any{"version": 2, "path": "/home", "dirs": map[string]string{"": home}}}), home,
		},
		"a relative bundle":                 {app(map[string]any{"bundle": "."}), "bundle"},
		"another app's record":              {app(map[string]any{"name": "other-1"}), "other-1"},
		"an app's first process is pid 1":   {app(map[string]any{"pid": 1, "starttime": 1}), "pid"},
		"a negative pid":                    {app(map[string]any{"pid": -5, "starttime": 1}), "pid"},
		"a placeholder of any start":        {app(map[string]any{"cgroup/placeholder": map[string]any{"pid": pid}}), "placeholder"},
		"a supervisor that started anytime": {shim(map[string]any{"supervisor": map[string]any{"pid": pid}}), "supervisor"},
		"a supervisor that is pid 1":        {shim(map[string]any{"supervisor": map[string]any{"pid": 1, "starttime": 1}}), "supervisor"},
		"a leader that is pid 1":            {shim(map[string]any{"supervisor/leader": 1}), "leader"},
		"a shim without a pid":              {shim(map[string]any{"shim": map[string]any{}}), "shim"},
		"a version that comes later":        {shim(map[string]any{"version": 2}), "version"},
		"a relative data directory":         {bundle(map[string]any{"dataDir": "rkt"}), "dataDir"},
		"a data directory with dots":        {bundle(map[string]any{"dataDir": "/var/../tmp"}), "dataDir"},
		"no data directory":                 {bundle(map[string]any{"dataDir": ""}), "dataDir"},
		"a pod that climbs":                 {bundle(map[string]any{"pod": "../../x"}), "pod"},
		"an app that climbs":                {bundle(map[string]any{"app": "../x"}), "app"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			if !l.Until(t, "shim", "live") {
				t.Fatal("it does not get there")
			}
			collector := l.collector(t)
			dirs := places(t, collector.Store)
			if len(dirs) != 1 {
				t.Fatalf("pods: %v", dirs)
			}
			podDir := filepath.Join(collector.Store.dir, "pods", dirs[0])
			files := map[string]string{shimFile: filepath.Join(podDir, shimFile), bundleFile: filepath.Join(l.Bundle(), bundleFile)}
			apps, _ := filepath.Glob(filepath.Join(podDir, appsInfoDir, "*", appFile))
			files[appFile] = apps[0]
			t.Chdir(t.TempDir())
			var damaged string
			was := map[string][]byte{}
			for file, fields := range c.edits {
				damaged = file
				was[file], _ = os.ReadFile(files[file])
				edit(t, files[file], maps.Clone(fields))
			}

			_, err := collector.Collect(t.Context(), l.Bundle(), "default", l.ID)
			if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), files[damaged]) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v; want one that names %s and %s", err, files[damaged], c.words)
			}
			if !proc.Alive(pid, start) {
				t.Fatal("a bystander was killed")
			}
			if made, _ := os.ReadDir("."); len(made) > 0 {
				t.Errorf("in the working directory it made %v", made)
			}
			if _, err := os.Stat(filepath.Join(home, "cgroup.procs")); err != nil {
				t.Error(err)
			}

			// With the original records a Collect leaves nothing.
			for file, text := range was {
				if err := os.WriteFile(files[file], text, 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := collector.Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil {
				t.Error(err)
			}
			l.NothingLeft(t)
		})
	}
}

// A Delete does not make a data directory that no longer exists, and does not turn another
// directory, which a record names by mistake, into a data directory.
func TestADeleteMakesNoDataDirectory(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	other := t.TempDir()
	if err := os.Chmod(other, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.Bundle(), bundleFile)
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{other, filepath.Join(other, "new")} {
		edit(t, file, map[string]any{"dataDir": dir})
		if exit, err := l.collector(t).Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil || exit.Found {
			t.Errorf("%+v, %v", exit, err)
		}
	}
	if st, err := os.Stat(other); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if made, _ := os.ReadDir(other); len(made) > 0 {
		t.Errorf("it made %v", made)
	}
	if err := os.WriteFile(file, was, 0o640); err != nil {
		t.Fatal(err)
	}
	l.collect(t)
	l.NothingLeft(t)
}
