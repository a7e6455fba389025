// Command machine is a stage1 whose apps are no processes of the host, as those of a virtual
// machine: it is the processor that runs them. Its programs are verbs of the kit's, and a few more
// (program.go). For each app and exec there is a proxy on the host.
//
//	machine init DIR [OWN [DEADLINES]]
//
// makes an image in DIR, whose manifest has these values of the annotations own and deadlines.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// socket is where the machine listens, in the image's tree, and below the pod's directory.
const (
	socket     = "rkt/machine.sock"
	rootfs     = "stage1/rootfs"
	proxyName  = "machine-proxy"
	executable = "/machine"
)

func main() {
	switch {
	case os.Args[0] == proxyName:
		os.Exit(proxy())
	case len(os.Args) > 2 && os.Args[1] == "init":
		check(image(os.Args[2], append(os.Args[3:], allOwn(), "")))
		return
	}
	text, err := os.ReadFile(os.Getenv(abi.EnvRequest))
	check(err)
	var r abi.Request
	check(json.Unmarshal(text, &r))
	switch r.Entrypoint {
	case abi.Run:
		check(run(&r))
	case abi.GC:
	default:
		os.Exit(ask(&r, text))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func allOwn() string {
	var words []string
	for _, o := range abi.Owns() {
		words = append(words, string(o))
	}
	return strings.Join(words, " ")
}

// fields are what the machine honours. Its programs read no environment and no files.
var fields = []string{
	"/root/path", "/process/args", "/process/env", "/process/cwd",
	"/linux/resources/memory/limit", "/linux/resources/memory/swap", "/linux/resources/pids/limit",
}

// image makes the image. values are those of own and of deadlines.
func image(dir string, values []string) error {
	type annotation struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	annotations := []annotation{
		{abi.AnnotationVersion, strconv.Itoa(abi.Version)}, {abi.AnnotationFeatures, "/features.json"},
		{abi.AnnotationServe, "/" + socket}, {abi.AnnotationOwn, values[0]}, {abi.AnnotationDeadlines, values[1]},
	}
	for _, e := range []abi.Entrypoint{
		abi.Run, abi.Stop, abi.GC, abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm, abi.AppSignal, abi.Enter,
		abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.Network,
	} {
		annotations = append(annotations, annotation{abi.AnnotationPrefix + string(e), executable})
	}
	manifest, err := json.Marshal(map[string]any{
		"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/stage1-machine", "annotations": annotations,
	})
	if err != nil {
		return err
	}
	document, err := json.Marshal(map[string]any{"oci": map[string]any{}, "fields": fields})
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, d := range []string{"opt/stage2", "rkt"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "manifest"), manifest, 0o644),
		os.WriteFile(filepath.Join(dir, "rootfs/features.json"), document, 0o644),
		os.WriteFile(filepath.Join(dir, "rootfs", executable), self, 0o755),
	)
}

// ask has the machine of the pod serve a call that is executed, and returns the exit code.
func ask(r *abi.Request, text []byte) int {
	failed := func(err error) int {
		fmt.Fprintln(proc.Inherited(abi.EnvErrorFD), err)
		return 1
	}
	conn, err := serve.Dial(rootfs, socket)
	if err != nil {
		if r.Entrypoint == abi.Stop || r.Entrypoint == abi.AppStop || r.Entrypoint == abi.AppRm {
			return 0 // the pod is over
		}
		return failed(err)
	}
	var fds []int
	if r.Entrypoint == abi.AppAdd || r.Entrypoint == abi.Enter {
		fds = []int{0, 1, 2}
	}
	if err := conn.Send(serve.Call, text, fds...); err != nil {
		return failed(err)
	}
	for {
		word, body, err := conn.Receive(serve.MaxAnswer)
		if err == io.EOF && r.Entrypoint == abi.Stop {
			return 0
		}
		if err != nil {
			return failed(err)
		}
		switch word {
		case serve.Ready:
			fmt.Fprintf(proc.Inherited(abi.EnvReadyFD), "%s\n", body)
		case serve.Answer:
			os.Stdout.Write(body)
		case serve.Error:
			fmt.Fprintf(proc.Inherited(abi.EnvErrorFD), "%s\n", body)
		case serve.Exit:
			code, err := strconv.Atoi(string(body))
			check(err)
			runtime.KeepAlive(conn)
			return code
		}
	}
}

// proxy stands for a process of the machine. It ends with the code that comes through descriptor
// 3, and with the machine.
func proxy() int {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGWINCH)
	var code [1]byte
	if _, err := os.NewFile(3, "exit").Read(code[:]); err != nil {
		return proc.KilledCode
	}
	return int(code[0])
}
