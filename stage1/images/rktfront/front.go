package rktfront

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// directory is where stage1s have files of their own, from the pod's directory.
const directory = "stage1/rootfs/rkt"

// front is where this package has its own: options, documents of calls, bundles. It is
// the pod's directory for the image's entrypoints: rkt and interface version 7 record
// ends in files of the same names and say different things there.
const front = directory + "/front"

// Called reports whether the entrypoint at a path was called as rkt's stage 0 calls it.
func Called(path string) bool { return os.Getenv(abi.EnvRequest) == "" && entrypoint(path) != "" }

// entrypoint returns the one at a path, by the name of its file, or nothing.
func entrypoint(path string) abi.Entrypoint {
	e := abi.Entrypoint(strings.Replace(filepath.Base(path), "app_", "app/", 1))
	switch e {
	case abi.Run, abi.Enter, abi.Stop, abi.GC, abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm:
		return e
	}
	return ""
}

// Main serves the call of an entrypoint, whose path and arguments are given, and returns
// the exit code. All entrypoints of the image are in one directory. If shares, the apps of
// a pod share its namespaces, as in rkt.
func Main(path string, args []string, shares bool) int {
	var err error
	switch e := entrypoint(path); e {
	case abi.Run:
		err = runPod(filepath.Dir(path), args, shares)
	case abi.GC:
		err = collect(filepath.Dir(path), args)
	default:
		return ask(e, args)
	}
	if err != nil && err.Error() != "" { // else it is the exit code of an app
		fmt.Fprintln(os.Stderr, err)
	}
	return codeOf(err)
}

// collect has the image remove what it keeps outside of the pod.
func collect(scripts string, args []string) error {
	if _, err := os.Stat(front); err != nil || len(args) == 0 {
		return nil // the pod has never run
	}
	p := &pod{scripts: scripts, options: &Options{UUID: args[len(args)-1]}, children: proc.NewChildren()}
	_, err := p.call(p.request(abi.GC, ""), nowhere)
	return err
}

// failure is the exit code of a call, and its words.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// exitFatal is the exit code of rkt's own entrypoints for whatever went wrong in them.
const exitFatal = 254

func codeOf(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	if err != nil {
		return exitFatal
	}
	return 0
}
