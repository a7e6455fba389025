package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Shown is a call as its entrypoint received it.
type Shown struct {
	Entrypoint  abi.Entrypoint    `json:"entrypoint"`
	Check       string            `json:"check"` // the id of the check that made the call
	Sentence    string            `json:"sentence"`
	Directory   string            `json:"directory"` // the working directory: that of the pod
	Args        []string          `json:"args"`      // argv[0] included
	Env         []string          `json:"env"`
	Descriptors []ShownDescriptor `json:"descriptors"`
	// Request is the document at RKT_STAGE1_REQUEST, and Process that at RKT_PROCESS. Each
	// is absent if its variable is not set.
	Request json.RawMessage `json:"request,omitempty"`
	Process json.RawMessage `json:"process,omitempty"`
}

// ShownDescriptor is an open descriptor of an entrypoint.
type ShownDescriptor struct {
	FD     int    `json:"fd"`
	Access string `json:"access"` // read, write or both
	File   string `json:"file"`   // the target of its link in /proc/PID/fd
}

// calledBy lists, for each entrypoint, checks that call it, as patterns for Select.
var calledBy = map[abi.Entrypoint][]string{
	abi.Run: {"run/ready", "exit/code"}, abi.Stop: {"run/ready", "stop/"}, abi.GC: {"run/ready", "gc/"},
	abi.AppAdd: {"add/blocked"}, abi.AppStart: {"add/blocked"}, abi.AppRm: {"app-rm/"}, abi.AppStop: {"app-stop/"},
	abi.AppSignal: {"signal/"}, abi.AppPause: {"pause/"}, abi.AppResume: {"pause/"}, abi.AppUpdate: {"update/"},
	abi.AppCheckpoint: {"checkpoint/"}, abi.Enter: {"enter/"}, abi.FeaturesProbe: {"features/"},
	abi.Network: {"network/"},
}

// Showable returns the entrypoints that Show can show, in the order of abi.Entrypoints.
func Showable() []abi.Entrypoint {
	return slices.DeleteFunc(abi.Entrypoints(), func(e abi.Entrypoint) bool { return len(calledBy[e]) == 0 })
}

// ChecksCalling returns the checks that Show runs to find a call of an entrypoint.
func ChecksCalling(e abi.Entrypoint) []Check {
	return Select(Checks(), calledBy[e]...)
}

// Show runs checks, one after the other, until one has called an entrypoint, and returns
// the first such call. In a copy of the image it replaces the entrypoint by a program that
// records the call and then executes the entrypoint. The copy declares no socket, so every
// call is an execution.
func (k *Kit) Show(ctx context.Context, e abi.Entrypoint, checks []Check) (*Shown, error) {
	if !k.image.Has(e) {
		return nil, fmt.Errorf("the stage1 has no %s; it has %s", e, k.declaredEntrypoints())
	}
	seen := filepath.Join(k.dir, "shown.json")
	copied, err := k.recordingImage(e, seen)
	if err == nil {
		err = k.load(ctx, copied)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the image: %w", err)
	}
	if err := os.Remove(seen); err != nil && !errors.Is(err, fs.ErrNotExist) { // Open's call of features/probe
		return nil, err
	}
	var words []string
	for _, c := range checks {
		r := k.check(ctx, c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, err := os.ReadFile(seen)
		if err == nil {
			s := &Shown{}
			err = json.Unmarshal(text, s)
			s.Entrypoint, s.Check, s.Sentence = e, c.ID, c.Sentence
			return s, err
		}
		words = append(words, strings.TrimSuffix(fmt.Sprintf("%s: %s", c.ID, r.Words), ": "))
	}
	return nil, fmt.Errorf("no check has called %s; they were\n%s", e, strings.Join(words, "\n"))
}

// declaredEntrypoints lists the entrypoints of the image that Show can show.
func (k *Kit) declaredEntrypoints() string {
	var names []string
	for _, e := range Showable() {
		if k.image.Has(e) {
			names = append(names, string(e))
		}
	}
	return strings.Join(names, ", ")
}

// recordingImage copies the image, and replaces an entrypoint by the recorder, which writes
// to the file whose path is to.
func (k *Kit) recordingImage(e abi.Entrypoint, to string) (string, error) {
	dir := filepath.Join(k.dir, "recording")
	tree := filepath.Dir(k.image.Rootfs())
	expected := k.children.Expect() // the kit reaps children that it does not know
	out, err := exec.Command("cp", "-a", tree, dir).CombinedOutput()
	expected()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err != nil {
		return "", err
	}
	var manifest map[string]any
	if err := json.Unmarshal(text, &manifest); err != nil {
		return "", err
	}
	annotations, _ := manifest["annotations"].([]any)
	manifest["annotations"] = slices.DeleteFunc(annotations, func(a any) bool {
		annotation, _ := a.(map[string]any)
		switch annotation["name"] {
		case abi.AnnotationPrefix + string(e):
			annotation["value"] = "/" + recorderName
		case abi.AnnotationServe:
			return true
		}
		return false
	})
	if text, err = json.Marshal(manifest); err != nil {
		return "", err
	}
	job, err := json.Marshal(recorderJob{Program: k.image.Entrypoint(e), To: to})
	if err != nil {
		return "", err
	}
	recorder := filepath.Join(dir, "rootfs", recorderName)
	return dir, errors.Join(
		os.WriteFile(filepath.Join(dir, "manifest"), text, 0o644),
		os.WriteFile(recorder+jobSuffix, job, 0o644),
		copyFile("/proc/self/exe", recorder),
	)
}
