package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/doctor"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// reportPods is the number of pods that a report describes: the newest.
const reportPods = 200

// reportReadme is the first file of a report.
const reportReadme = `A report of "rktctl report", for a bug report.

Each file has facts of an allowed list only. Whole specs, manifests, requests and configurations
of other programs are not in it. What is left out, wherever it occurs in a text, and replaced by
[redacted] if it has six characters or more:
  - values of environments of containers and hooks
  - arguments of containers, execs, hooks and entrypoints (names of programs stay)
  - of such a value or argument also the part after "=" alone, and the user and the password of a URL; not other
    parts, such as the words of a shell script
  - values of mount options; sources and destinations of mounts are only in texts of errors
  - annotations and labels, but for those of this runtime and the names of pods in Kubernetes
  - containerd's configuration, but for the handlers of this runtime
What is in it: ids and names of pods and containers, paths, process ids, exit codes, times, texts
of errors and of stage1s, the settings of this runtime, versions, and what rktctl doctor found.
Read it before you give it to others.
`

// nodeVersions are the versions of the parts of a node.
type nodeVersions struct {
	versions
	Kernel  string `json:"kernel"`
	Machine string `json:"machine"`
	System  string `json:"system,omitempty"` // the distribution and its version
}

func newReport(e *Env) *cobra.Command {
	cmd := verb("report", "report [OPTIONS]", "collect what a bug report needs, without secrets, in one archive", none)
	path := cmd.Flags().String("file", "", "write the archive to `PATH`, which must not exist; if it is not given, rkt-report-TIME.tar.gz in this directory")
	kernel := cmd.Flags().Bool("dmesg", false, "add the end of the kernel's log, which has texts of all programs of the machine")
	containerd := cmd.Flags().String("containerd-config", "", "containerd's configuration is `FILE`, as for rktctl doctor")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *path == "" {
			*path = time.Now().UTC().Format("rkt-report-20060102-150405.tar.gz")
		}
		a := &archive{}
		gather(cmd.Context(), e, a, *containerd)
		if *kernel {
			a.text("dmesg.txt", kernelLog())
		}
		contents, err := a.write(*path)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		return out.write(contents, func() *table {
			t := &table{columns: []column{{"BYTES", 0}, {"FILE", 20}, {"WHAT BECAME OF IT", 0}}}
			for _, c := range contents.Files {
				t.add(c.Bytes, c.Name, c.Note)
			}
			t.add("", contents.Path, "the archive, mode 0600")
			return t
		})
	}
	return cmd
}

// gather adds all files to the archive. A part that cannot be read is described by its error.
func gather(ctx context.Context, e *Env, a *archive, containerd string) {
	a.text("README.txt", reportReadme)
	a.add("versions.json", nodeVersionsOf(e), nil)
	n := thisNode(ctx, e, containerd)
	a.add("doctor.json", doctor.Examine(ctx, n), nil)
	c, err := config.Open(e.Getenv)
	if err == nil {
		a.add("config.json", map[string]any{
			"default": c.Default, "refuseUnknownFields": c.RefuseUnknown, "stage1": c.Stage1s, "fields": c.Sets, "aci": c.ACIs,
		}, nil)
	} else {
		a.add("config.json", nil, err)
	}
	handlers, err := n.Handlers()
	a.add("handlers.json", handlers, err)
	gatherPods(e, a)
	failed, err := disk.Failures(dataDir(e))
	a.add("failed.json", failed, err)
}

// gatherPods adds the newest pods, and the secrets of all pods.
func gatherPods(e *Env, a *archive) {
	node, err := view.Open(dataDir(e))
	var pods []*view.Pod
	if err == nil {
		pods, err = node.Pods()
	}
	if err != nil {
		a.add("pods", nil, err)
		return
	}
	for _, p := range pods {
		for _, app := range p.Apps {
			a.secrets.AddBundle(app.Bundle)
		}
	}
	for _, p := range pods[max(0, len(pods)-reportPods):] {
		a.add(filepath.Join("pods", p.UUID, "pod.json"), p, nil)
		entries, err := node.Journal(p.UUID)
		calls := []journal.Entry{}
		for _, entry := range entries {
			calls = append(calls, entry.WithoutArguments())
		}
		a.add(filepath.Join("pods", p.UUID, "journal.json"), calls, err)
	}
}

func nodeVersionsOf(e *Env) nodeVersions {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	return nodeVersions{
		versionsOf(e), unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Machine[:]), distribution(),
	}
}

// distribution returns the id and the version of /etc/os-release.
func distribution() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return osRelease(string(text))
}

// kernelLog returns the kernel's log, or an error in its place.
func kernelLog() string {
	const readAll = 3 // SYSLOG_ACTION_READ_ALL
	b := make([]byte, reportFile)
	n, err := unix.Klogctl(readAll, b)
	if err != nil {
		return "the kernel's log cannot be read: " + err.Error()
	}
	return abi.Printable(string(b[:n]))
}

// jsonOf encodes a value, for people.
func jsonOf(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
