package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A reboot ends every process and every mount, and empties /run; the data directory stays.
// After it, the recorded pids belong to other processes.
func TestAPodOfAnotherBootIsCollectedAndNobodyIsSignalled(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		dir := filepath.Join(suite.dir, "boot-"+c.name)
		d, err := startDaemon(c.context(t), "boot-"+c.name, c.daemon.Namespace()+"-boot", dataDir(dir))
		if err != nil {
			t.Fatal(err)
		}
		booted := &column{name: c.name, runtime: c.runtime, daemon: d}
		if booted.client, err = d.Client(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { booted.discard(t) })
		id := booted.start(t, nil, "testprog", "fork", "1")
		pod, _ := booted.pod(t, id)

		bystander := exec.Command("sleep", "1000")
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = bystander.Wait() }()
		defer func() { _ = bystander.Process.Kill() }()

		d.Kill()
		powerOff(t, booted.scope())
		rewriteRecords(t, pod, bystander.Process.Pid)
		for _, lost := range []string{"state", "s", "root/io.containerd.runtime.v2.task"} {
			if err := os.RemoveAll(filepath.Join(dir, lost)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Resume(booted.context(t)); err != nil {
			t.Fatal(err)
		}
		booted.run(t, []string{"--rm"}, "after", "true").must(t)
		wait.Observe(t, "the pod of the other boot is collected", func() (bool, string) {
			found, err := filepath.Glob(filepath.Join(dataDir(dir), "pods/*", filepath.Base(pod)))
			return err == nil && len(found) == 0, strings.Join(found, " ")
		})
		if !alive(bystander.Process.Pid) {
			t.Error("a process that had nothing to do with the pod was killed")
		}
	})
}

// powerOff ends and unmounts everything in a scope.
func powerOff(t *testing.T, s leaks.Scope) {
	t.Helper()
	wait.Observe(t, "nothing runs and nothing is mounted", func() (bool, string) {
		pids, err := s.Processes()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		mounts, err := s.MountPoints()
		if err != nil {
			t.Fatal(err)
		}
		for i := len(mounts) - 1; i >= 0; i-- {
			_ = syscall.Unmount(mounts[i], syscall.MNT_DETACH) // it may be unmounted already
		}
		left, err := s.Remains()
		if err != nil {
			t.Fatal(err)
		}
		left = leaks.Only(left, "process", "mount")
		return len(left) == 0, strings.Join(left, "\n\t")
	})
	wait.Observe(t, "the cgroups are empty", func() (bool, string) {
		err := s.RemoveCgroups()
		return err == nil, fmt.Sprint(err)
	})
}

// rewriteRecords changes a pod's records to those of another boot, with the pid of a live
// process everywhere. Only the boot id protects that process.
func rewriteRecords(t *testing.T, pod string, pid int) {
	t.Helper()
	started := startTime(t, pid)
	files := []string{filepath.Join(pod, "shim.json")}
	apps, err := filepath.Glob(filepath.Join(pod, "appsinfo/*/app.json"))
	if err != nil || len(apps) == 0 {
		t.Fatalf("no app in %s: %v", pod, err)
	}
	for _, f := range append(files, apps...) {
		var record map[string]any
		if err := json.Unmarshal([]byte(read(t, f)), &record); err != nil {
			t.Fatal(err)
		}
		replacePIDs(record, pid, started)
		b, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, string(b))
	}
}

func replacePIDs(record map[string]any, pid int, started uint64) {
	for key, value := range record {
		switch v := value.(type) {
		case map[string]any:
			replacePIDs(v, pid, started)
		default:
			switch key {
			case "bootID":
				record[key] = "00000000-0000-4000-8000-000000000000"
			case "pid", "leader":
				record[key] = pid
			case "starttime":
				record[key] = started
			}
		}
	}
}

// startTime returns field 22 of /proc/PID/stat.
func startTime(t *testing.T, pid int) uint64 {
	t.Helper()
	stat := read(t, "/proc/"+strconv.Itoa(pid)+"/stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// discard removes the containers, the daemon and the directory of a column that a test has made
// for itself.
func (c *column) discard(t *testing.T) {
	t.Helper()
	c.cleanUp(t)
	c.client.Close()
	if err := c.daemon.Stop(); err != nil {
		t.Error(err)
	}
	if err := c.scope().Forget(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(c.daemon.Dir()); err != nil {
		t.Error(err)
	}
}
