package pod

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// newMachine returns a pod whose stage1 runs its apps where stage 0 does not see them.
func newMachine(t *testing.T) *world {
	w := newWorld(t)
	w.stage1.own = abi.Owns()
	w.stage1.has[abi.AppStats] = true
	w.resources = `,"resources":{"memory":{"limit":67108864},"pids":{"limit":3}}`
	return w
}

func TestOwnResourcesAreNotLimitedOrFrozenOnTheHost(t *testing.T) {
	w := newMachine(t)
	w.mustCreate("a", "sleep 1000")
	w.mustStart("a", "")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	st, err := a.cgroup.Stats()
	if err != nil || st.Usage["memory"].Limit == 67108864 || st.Pids.Limit == 3 {
		t.Errorf("the cgroup of the proxy has limits: memory %+v, pids %+v, %v", st.Usage["memory"], st.Pids, err)
	}
	for _, test := range []struct {
		entrypoint abi.Entrypoint
		err        error
	}{
		{abi.AppPause, w.Pause(t.Context(), "a")},
		{abi.AppUpdate, w.Update(t.Context(), "a", []byte(`{"memory":{"limit":134217728}}`))},
	} {
		if !errdefs.IsNotImplemented(test.err) || !strings.Contains(test.err.Error(), string(test.entrypoint)) {
			t.Errorf("without %s: %v", test.entrypoint, test.err)
		}
	}
	if a.cgroup.Frozen() {
		t.Error("the proxy was frozen")
	}
	w.stage1.has[abi.AppPause], w.stage1.has[abi.AppResume], w.stage1.has[abi.AppUpdate] = true, true, true
	if err := errors.Join(w.Pause(t.Context(), "a"), w.Resume(t.Context(), "a"), w.Update(t.Context(), "a", []byte(`{"memory":{"limit":134217728}}`))); err != nil {
		t.Error(err)
	}
	if calls := w.stage1.callsOf(abi.AppUpdate); len(calls) != 1 || !strings.Contains(string(calls[0].Resources), "134217728") {
		t.Errorf("app/update was called with %+v", calls)
	}
	if st, err := a.cgroup.Stats(); err != nil || st.Usage["memory"].Limit == 134217728 {
		t.Errorf("an update has limited the proxy: %+v, %v", st.Usage["memory"], err)
	}
	w.end("a")
}

func TestStatisticsAndPidsAreTheStage1sOwn(t *testing.T) {
	w := newMachine(t)
	w.mustCreate("a", "sleep 1000")
	w.stage1.counts = `{"cpu":{"usage":5000000,"user":3000000},"memory":{"usage":1000,"limit":2000,"inactiveFile":100,"oomKills":2},
		"pids":{"current":3},"io":[{"major":8,"minor":1,"readBytes":7}],"network":[{"name":"eth0","receive":{"bytes":11}}],
		"processes":[{"pid":1},{"pid":9,"exec":"e"}]}`
	st, err := w.Stats(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if st.CPUTime.Total != 5000000 || st.CPU["usage_usec"] != 5000 || st.Usage["memory"].Current != 1000 || st.Usage["memory"].Limit != 2000 ||
		st.OOM["oom_kill"] != 2 || st.Pids.Current != 3 || len(st.Network) != 1 || st.Network[0].Receive.Bytes != 11 {
		t.Errorf("statistics are %+v, network %+v", st.Stats, st.Network)
	}
	pids, err := w.Pids(t.Context(), "a")
	if want := []ProcessInfo{{PID: 1}, {PID: 9, Exec: "e"}}; err != nil || !slices.Equal(pids, want) {
		t.Errorf("processes are %v, %v; want %v", pids, err, want)
	}
	w.stage1.counts = "?"
	if _, err := w.Stats(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "app/stats") {
		t.Errorf("an answer that is no document: %v", err)
	}
	w.stage1.on(abi.AppStats, fails(errdefs.ErrNotFound))
	if _, err := w.Pids(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
		t.Errorf("pids of an app that the stage1 does not know: %v", err)
	}
	w.end("a")
}

func TestStatisticsHaveTheFormOfTheHostsCgroups(t *testing.T) {
	s := abi.StatsAnswer{
		Memory: abi.MemoryStats{Usage: 10, InactiveFile: 3, SwapUsage: 5},
		IO:     []abi.IOStats{{Major: 8, Minor: 1, ReadBytes: 7, Writes: 2}},
	}
	v1, v2 := counted(s, 1), counted(s, 2)
	if v1.Memory["total_inactive_file"] != 3 || v2.Memory["inactive_file"] != 3 {
		t.Errorf("inactive files: %v and %v", v1.Memory, v2.Memory)
	}
	if v1.Usage["swap"].Current != 15 || v2.Usage["swap"].Current != 5 {
		t.Errorf("swap: %+v and %+v", v1.Usage, v2.Usage)
	}
	if v1.IO["io_service_bytes"][0].Values["Read"] != 7 || v1.IO["io_serviced"][0].Values["Write"] != 2 || v2.IO[""][0].Values["rbytes"] != 7 {
		t.Errorf("input and output: %+v and %+v", v1.IO, v2.IO)
	}
	if v2.Pids.Limit != math.MaxUint64 || v1.Pids.Limit != 0 || v1.Usage["memory"].Limit != math.MaxUint64 {
		t.Errorf("limits that are not there: %+v, %+v, %+v", v2.Pids, v1.Pids, v1.Usage)
	}
}

func TestAnOOMOfAMachineIsPublishedBeforeTheExitItCaused(t *testing.T) {
	w := newMachine(t)
	w.mustCreate("a", "sleep 1000")
	w.mustStart("a", "")
	name := w.appName("a")
	w.stage1.tell("oom "+name, "exit "+name+" code=137 signal=9")
	w.mustWait("a", "")
	w.before("oom a", "exited a")
	w.end("a")
}

func TestAnOOMOfAStage1WhoseResourcesAreTheHostsIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "sleep 1000")
	w.mustStart("a", "")
	w.stage1.tell("oom " + w.appName("a"))
	w.end("a")
	if events := w.events.words(); slices.Contains(events, "oom a") {
		t.Errorf("the events are %v", events)
	}
}

func TestASignalForAllIsTheStage1s(t *testing.T) {
	w := newMachine(t)
	w.mustCreate("a", "sleep 1000")
	w.mustStart("a", "")
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGUSR1), true); err != nil {
		t.Error(err)
	}
	calls := w.stage1.callsOf(abi.AppSignal)
	if len(calls) != 1 || !calls[0].All || calls[0].Signal != int(syscall.SIGUSR1) {
		t.Fatalf("app/signal was called with %+v", calls)
	}
	w.mustWait("a", "")
	w.mustCreate("b", "sleep 1000")
	w.mustStart("b", "")
	w.stage1.on(abi.AppSignal, fails(errors.New("the machine hangs")))
	if err := w.Kill(t.Context(), "b", "", killSignal, true); err != nil {
		t.Errorf("SIGKILL depends on a stage1 that fails: %v", err)
	}
	w.mustWait("b", "")
	w.stage1.on(abi.AppSignal)
	w.mustDelete("a", "")
	w.mustDelete("b", "")
}

// listedRoot is a root that must not be mounted.
type listedRoot struct{ mounts []abi.Mount }

func (listedRoot) Empty() bool                         { return false }
func (listedRoot) Mount(context.Context, string) error { return errors.New("stage 0 mounts the root") }
func (r listedRoot) Mounts() ([]abi.Mount, error)      { return r.mounts, nil }

func TestAStage1ThatMountsTheRootGetsTheMounts(t *testing.T) {
	w := newMachine(t)
	mounts := []abi.Mount{{Type: "erofs", Source: "/image", Options: []string{"ro"}}, {Type: "ext4", Source: "/dev/loop7", Target: "rw"}}
	bundle := t.TempDir()
	w.stage1.script("a", "sleep 1000")
	_, err := w.CreateApp(t.Context(), AppConfig{
		ID: "a", Bundle: bundle, Rootfs: listedRoot{mounts}, Stdio: &noStdio{},
		Spec: readSpec(t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := w.stage1.callsOf(abi.AppAdd)[0]
	if len(r.Mounts) != 2 || r.Mounts[1].Target != "rw" || r.Rootfs != filepath.Join(bundle, "rootfs") {
		t.Errorf("app/add has the mounts %+v for %s", r.Mounts, r.Rootfs)
	}
	// What the stage1 has mounted there goes with the app.
	if err := syscall.Mount("none", r.Rootfs, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	w.end("a")
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(text), r.Rootfs) {
		t.Errorf("a mount on %s is left (%v)", r.Rootfs, err)
	}
}

func TestAStage1ThatOwnsDisksGetsOnlyRootsOfDisks(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mounts []abi.Mount
		disk   bool
	}{
		"an image file":           {[]abi.Mount{{Type: "ext4", Source: image, Options: []string{"loop"}}}, true},
		"a device for characters": {[]abi.Mount{{Type: "ext4", Source: os.DevNull}}, false},
		"a directory":             {[]abi.Mount{{Type: "bind", Source: filepath.Dir(image), Options: []string{"rbind"}}}, false},
		"an overlay":              {[]abi.Mount{{Type: "overlay", Source: "overlay"}}, false},
		"an image below the root": {[]abi.Mount{{Type: "ext4", Source: image, Target: "below"}}, false},
		"an image that is mapped": {[]abi.Mount{{Type: "ext4", Source: image, Options: []string{"loop", "uidmap=0:1:1", "gidmap=0:1:1"}}}, false},
		"an image of two files":   {[]abi.Mount{{Type: "erofs", Source: image, Options: []string{"loop", "device=" + image}}}, false},
		"two images":              {[]abi.Mount{{Type: "erofs", Source: image}, {Type: "ext4", Source: image}}, false},
		"an overlay of images":    {[]abi.Mount{{Type: "ext4", Source: image}, {Type: "erofs", Source: image}, {Type: "overlay", Options: []string{"lowerdir=1:1", "upperdir=0/upper", "workdir=0/work"}}}, true},
		"too many layers":         {append(slices.Repeat([]abi.Mount{{Type: "erofs", Source: image}}, 33), abi.Mount{Type: "overlay", Options: []string{"lowerdir=0:1"}}), false},
		"layers of the host":      {[]abi.Mount{{Type: "erofs", Source: image}, {Type: "overlay", Options: []string{"lowerdir=0:/lower"}}}, false},
		"a part of the host":      {[]abi.Mount{{Type: "bind", Source: "/"}, {Type: "overlay", Options: []string{"lowerdir=0:0"}}}, false},
		"an overlay below":        {[]abi.Mount{{Type: "erofs", Source: image}, {Type: "overlay", Target: "x", Options: []string{"lowerdir=0:0"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMachine(t)
			w.stage1.own = slices.DeleteFunc(slices.Clone(w.stage1.own), func(o abi.Own) bool { return o == abi.OwnRootfs })
			w.stage1.script("a", "sleep 1000")
			_, err := w.CreateApp(t.Context(), AppConfig{
				ID: "a", Bundle: t.TempDir(), Rootfs: listedRoot{test.mounts}, Stdio: &noStdio{},
				Spec: readSpec(t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}`),
			})
			if (err == nil) != test.disk {
				t.Fatal(err)
			}
			if !test.disk {
				return
			}
			if r := w.stage1.callsOf(abi.AppAdd)[0]; !reflect.DeepEqual(r.Mounts, test.mounts) {
				t.Errorf("app/add has the mounts %+v", r.Mounts)
			}
			w.end("a")
		})
	}
}

// A machine has few places for disks, so the host mounts the layers of further apps.
func TestThePlacesOfLayersArePassedOn(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newMachine(t)
	w.stage1.own = slices.DeleteFunc(slices.Clone(w.stage1.own), func(o abi.Own) bool { return o == abi.OwnRootfs })
	create := func(id string, layers int) error {
		w.stage1.script(id, "sleep 1000")
		mounts := append(slices.Repeat([]abi.Mount{{Type: "erofs", Source: image}}, layers), abi.Mount{Type: "overlay", Options: []string{"lowerdir=0:1"}})
		_, err := w.CreateApp(t.Context(), AppConfig{
			ID: AppID(id), Bundle: t.TempDir(), Rootfs: listedRoot{mounts}, Stdio: &noStdio{},
			Spec: readSpec(t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}`),
		})
		return err
	}
	if err := errors.Join(create("a", 9), create("b", 16)); err != nil { // two places each
		t.Fatal(err)
	}
	if err := create("c", 2); err == nil || !strings.Contains(err.Error(), "stage 0 mounts the root") {
		t.Errorf("a root without a place: %v", err)
	}
	w.end("a")
	if err := create("c", 2); err != nil {
		t.Errorf("a root with the place of another app that is gone: %v", err)
	}
	w.end("b")
	w.end("c")
}
