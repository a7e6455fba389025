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

// directory is the stage1's own directory in the pod directory.
const directory = "stage1/rootfs/rkt"

// front is the directory of this package's files: options, bundles and the holder's root.
// It is the working directory of the image's entrypoints, because rkt and interface version
// 7 use files with the same names for different data.
const front = directory + "/front"

// Called reports whether the entrypoint at a path was called by rkt's stage 0.
func Called(path string) bool { return os.Getenv(abi.EnvRequest) == "" && entrypoint(path) != "" }

// entrypoint returns the entrypoint at a path by the name of the file, or "" if the name is
// no entrypoint's.
func entrypoint(path string) abi.Entrypoint {
	e := abi.Entrypoint(strings.Replace(filepath.Base(path), "app_", "app/", 1))
	switch e {
	case abi.Run, abi.Enter, abi.Stop, abi.GC, abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm:
		return e
	}
	return ""
}

// Main serves a call of the entrypoint at a path and returns the exit code. All entrypoints
// of the image must be in one directory. If shares is set, the apps of a pod share its
// namespaces, as in rkt.
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
	if err != nil && err.Error() != "" { // an error without text only has the exit code of an app
		fmt.Fprintln(os.Stderr, err)
	}
	return codeOf(err)
}

// collect makes the image remove its files outside of the pod.
func collect(scripts string, args []string) error {
	if _, err := os.Stat(front); err != nil || len(args) == 0 {
		return nil // `run` was never called
	}
	p := &pod{scripts: scripts, options: &Options{UUID: args[len(args)-1]}, children: proc.NewChildren()}
	return p.do(p.request(abi.GC, ""))
}

// failure is an error with an exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// exitFatal is the exit code of rkt's own entrypoints for every error.
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
