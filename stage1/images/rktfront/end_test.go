package rktfront_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// unlike is an argument that no other process on the machine has.
func unlike(t *testing.T) string { return "/" + strings.ReplaceAll(t.Name(), "/", ".") }

// processesWith lists the processes that have an argument.
func processesWith(argument string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(a []byte) bool { return string(a) == argument }) {
			found = append(found, f)
		}
	}
	return found
}

// sleeper is an app that does not end, and can be found by its argument.
func sleeper(argument string) map[string]any {
	section := shell("busybox sleep 100000; :")
	section["exec"] = append(section["exec"].([]string), argument)
	return section
}

// gone waits until nothing is left of an app of the pod.
func (p *rktPod) gone(argument string) {
	p.t.Helper()
	p.await("its processes end", func() bool { return len(processesWith(argument)) == 0 })
	if p.image != "oci" {
		return // which alone makes cgroups
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), podID) {
			p.t.Errorf("a cgroup is left: %s", path)
		}
		return nil
	})
}

func TestAPodOfSeveralAppsEndsAsTheFirstOfThemThatFails(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		var apps []any
		for name, code := range map[string]string{"fine": "0", "bad": "3"} {
			p.app(name, shell(""), nil)
			apps = append(apps, map[string]any{"name": name, "image": map[string]any{"id": "sha512-0"}, "app": shell("exit " + code)})
		}
		p.manifest(map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": apps})
		p.start("--net=host")
		p.ends(3)
		for name, want := range map[string]string{"fine": "0\n", "bad": "3\n"} {
			if got := p.file("stage1/rootfs/rkt/status/" + name); got != want {
				t.Errorf("the end of %s is recorded as %q, want %q", name, got, want)
			}
		}
	})
}

func TestAPodThatIsStoppedByForceLeavesNothing(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", sleeper(unlike(t)), nil)
		p.start("--net=host")
		p.await("the app runs", func() bool { return len(processesWith(unlike(t))) > 0 })
		p.expect(0, "", "stop", "--force", podID)
		_ = p.run.Wait()
		p.expect(0, "", "gc", podID)
		p.gone(unlike(t))
		p.expect(0, "", "stop", podID)
	})
}

// A supervisor that is killed cannot end its apps: gc does.
func TestGcEndsWhatAKilledSupervisorHasLeft(t *testing.T) {
	p := newRktPod(t, "oci")
	p.app("web", sleeper(unlike(t)), nil)
	p.start("--net=host")
	p.await("the app runs", func() bool { return len(processesWith(unlike(t))) > 0 })
	must(t, p.run.Process.Kill())
	_, _ = p.run.Process.Wait() // not for its streams, which the app has
	p.expect(0, "", "gc", podID)
	p.gone(unlike(t))
	p.expect(0, "", "gc", podID)
}

// If `run` is killed, the supervisor of the image must end: no other process would stop it.
func TestTheImagesSupervisorDoesNotOutliveRun(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		run := filepath.Join(p.bin, "run")
		p.app("web", sleeper(unlike(t)), nil)
		p.start("--net=host")
		p.await("the app runs", func() bool { return len(processesWith(unlike(t))) > 0 })
		if n := len(processesWith(run)); n != 2 {
			t.Errorf("%d processes are run: want that of the call, and the image's supervisor", n)
		}
		must(t, p.run.Process.Kill())
		_, _ = p.run.Process.Wait()
		p.await("the supervisor ends", func() bool { return len(processesWith(run)) == 0 })
		p.expect(0, "", "gc", podID)
		for _, f := range processesWith(unlike(t)) { // which are stage 0's to kill
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			must(t, err)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		p.gone(unlike(t))
	})
}

// That a program cannot be executed is not known from the manifest, but when the app is
// added. Then another app can still be added.
func TestAnAppThatCannotBeExecutedFailsToBeAdded(t *testing.T) {
	p := newRktPod(t, "oci")
	p.manifest(map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": []any{}})
	p.start("--net=host", "--mutable")
	p.await("there is a supervisor", func() bool { return p.file("pid") != "" && !strings.Contains(p.file("pid"), "no such file") })
	section := shell("true")
	section["exec"] = []string{"absent"}
	p.app("web", section, nil)
	code, out := p.call("app_add", "--debug=false", "--uuid="+podID, "--app=web")
	if code == 0 || !strings.Contains(out, "executable file not found in $PATH") {
		t.Errorf("app/add: exit code %d, %q", code, out)
	}
	must(t, os.RemoveAll(filepath.Join(p.dir, "stage1/rootfs/opt/stage2/web")))
	p.app("web", shell("exit 4"), nil)
	p.expect(0, "", "app_add", "--debug=false", "--uuid="+podID, "--app=web")
	p.expect(0, "", "app_start", "--debug=false", "--app=web")
	p.await("its end is recorded", func() bool { return p.file("stage1/rootfs/rkt/status/web") == "4\n" })
	p.expect(0, "", "stop", podID)
	p.ends(0)
}
