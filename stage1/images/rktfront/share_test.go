package rktfront_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// apps makes the files of apps that execute scripts, and the pod's manifest with all.
func (p *rktPod) apps(scripts map[string]string) {
	p.t.Helper()
	var all []any
	for name, script := range scripts {
		p.app(name, shell(script), nil)
		all = append(all, map[string]any{"name": name, "image": map[string]any{"id": "sha512-0"}, "app": shell(script)})
	}
	p.manifest(map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": all})
}

// said returns what an app has written to a file of its own.
func (p *rktPod) said(app string) string {
	p.t.Helper()
	path := filepath.Join("stage1/rootfs/opt/stage2", app, "rootfs/tmp/said")
	p.await(app+" says something", func() bool { return strings.HasSuffix(p.file(path), "end\n") })
	return p.file(path)
}

// runMutable starts a pod without apps.
func (p *rktPod) runMutable(args ...string) {
	p.t.Helper()
	p.manifest(map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": []any{}})
	p.start(append(args, "--mutable")...)
	p.await("there is a supervisor", func() bool {
		to, err := os.Readlink(filepath.Join(p.dir, "stage1/rootfs/rkt/supervisor-status"))
		return err == nil && to == "ready"
	})
}

const namespaces = `for n in pid ipc uts net; do busybox readlink /proc/self/ns/$n; done; busybox hostname; echo end`

func TestTheAppsOfAPodShareItsNamespacesAsInRkt(t *testing.T) { // rkt-abi.md, section 11
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.apps(map[string]string{
			"a": `{ ` + namespaces + `; } >/tmp/said; exec busybox sleep 1000`,
			"b": `{ ` + namespaces + `; } >/tmp/said; exec busybox sleep 2000`,
		})
		p.start("--net=none", "--hostname=box")
		a, b := strings.Fields(p.said("a")), strings.Fields(p.said("b"))
		for i, kind := range []string{"pid", "ipc", "uts", "net"} {
			host, err := os.Readlink("/proc/self/ns/" + kind)
			must(t, err)
			if own := p.image == "oci"; (a[i] == b[i]) == own || a[i] == host {
				t.Errorf("namespaces %s and %s, the host's is %s", a[i], b[i], host)
			}
		}
		if a[4] != "box" || b[4] != "box" {
			t.Errorf("hostnames %s and %s", a[4], b[4])
		}
		// The apps see each other by their pids in the pod, and one ends the other. They do
		// not see the host's files through the process that holds their namespaces.
		if p.image != "oci" {
			code, out := p.call("enter", "--pid=1", "--appname=a", "--", "sh", "-c", killing("sleep 2000")+`test -d /proc/1 && ! busybox ls /proc/1/root/bin 2>/dev/null && ! (: >>/proc/1/root/proc/sys/kernel/core_pattern) 2>/dev/null`)
			if code != 0 {
				t.Errorf("the one does not see the other: exit code %d, %q", code, out)
			}
			p.await("the other has ended", func() bool { return p.file("stage1/rootfs/rkt/status/b") == "9\n" })
		}
		p.expect(0, "", "stop", podID)
		_ = p.run.Wait()
		p.nothingRuns()
	})
}

// killing is a script that kills every busybox with these arguments.
func killing(args string) string {
	return `for p in /proc/[0-9]*; do case "$(busybox tr '\0' ' ' <$p/cmdline 2>/dev/null)" in "busybox ` + args + ` ") busybox kill -KILL ${p#/proc/};; esac; done; `
}

// nothingRuns makes sure that no process of the pod is left.
func (p *rktPod) nothingRuns() {
	p.t.Helper()
	p.await("no process of the pod is left", func() bool { return len(p.processes()) == 0 })
}

// processes are those whose root is in the pod's directory, by pid.
func (p *rktPod) processes() map[int]string {
	p.t.Helper()
	dirs, err := os.ReadDir("/proc")
	must(p.t, err)
	found := map[int]string{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil || !strings.Contains(string(mounts), p.dir) || pid == os.Getpid() {
			continue
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && len(args) > 0 {
			found[pid] = strings.ReplaceAll(string(args), "\x00", " ")
		}
	}
	return found
}

func TestWhatAnAppHasStartedEndsWithIt(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.runMutable("--net=host")
		const script = `for i in 1 2 3; do busybox setsid busybox sleep 100$i & done; echo end >/tmp/said; until test -e /tmp/go; do busybox sleep 0.1; done`
		for _, name := range []string{"stays", "stops", "ends"} {
			p.app(name, shell(script), nil)
			p.expect(0, "", "app_add", "--debug=false", "--uuid="+podID, "--app="+name)
			p.expect(0, "", "app_start", "--debug=false", "--app="+name)
			p.said(name)
		}
		sleeping := func(app string) (n int) {
			for pid := range p.processes() {
				if own, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/tmp/app", pid)); err == nil && string(own) == app {
					n++
				}
			}
			return n
		}
		for _, name := range []string{"stays", "stops", "ends"} {
			must(t, os.WriteFile(filepath.Join(p.dir, "stage1/rootfs/opt/stage2", name, "rootfs/tmp/app"), []byte(name), 0o644))
			p.await("all of "+name, func() bool { return sleeping(name) >= 4 })
		}
		p.expect(0, "", "app_stop", "--debug=false", "--app=stops")
		p.await("what was stopped is gone", func() bool { return sleeping("stops") == 0 })
		must(t, os.WriteFile(filepath.Join(p.dir, "stage1/rootfs/opt/stage2/ends/rootfs/tmp/go"), nil, 0o644))
		p.await("nothing is left of the one that has ended", func() bool { return sleeping("ends") == 0 })
		if n := sleeping("stays"); n < 4 {
			t.Errorf("of the app that stays %d processes are left", n)
		}
		p.expect(0, "", "stop", podID)
		p.ends(0)
		p.nothingRuns()
	})
}

func TestAPodEndsWithTheHolderOfItsNamespaces(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		if p.image == "oci" {
			t.Skip("its apps share nothing")
		}
		p.runMutable("--net=host")
		p.app("web", shell(`echo end >/tmp/said; exec busybox sleep 1000`), nil)
		p.expect(0, "", "app_add", "--debug=false", "--uuid="+podID, "--app=web")
		p.expect(0, "", "app_start", "--debug=false", "--app=web")
		p.said("web")
		for pid, args := range p.processes() {
			if strings.HasPrefix(args, "/hold") {
				must(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
		p.ends(1)
		if !strings.Contains(p.out.String(), "the process that holds the pod's namespaces has ended") {
			t.Errorf("run says %q", p.out.String())
		}
		if got := p.file("stage1/rootfs/rkt/status/web"); got != "9\n" {
			t.Errorf("the app's end is recorded as %q", got)
		}
		p.nothingRuns()
	})
}
