package container

import (
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// AppRequest asks for the first process of an app.
type AppRequest struct {
	Request abi.Request
	Spec    *specs.Spec
	// CgroupFiles are the `tasks` files of the app's cgroups, open for writing.
	// Empty on version 2, where the process was cloned into its cgroup.
	CgroupFiles []*os.File
}

// ExecRequest asks for a further process in an app.
type ExecRequest struct {
	Request     abi.Request
	Process     *specs.Process
	App         *specs.Spec // as the app was made
	CgroupFiles []*os.File  // as for an AppRequest
	// JoinsUserNamespace says that the app has a user namespace that is not the
	// host's.
	JoinsUserNamespace bool
}

// Prepared is everything that Init needs, besides its namespaces.
type Prepared struct {
	Config []byte     // for fd 4
	Files  []*os.File // for fd 5 and above, in this order

	own     []*os.File // those of Files that Close has to close
	request limits
}

// Close closes the files that Prepare has opened. Those of the request's
// CgroupFiles remain the caller's.
func (p *Prepared) Close() {
	for _, f := range p.own {
		f.Close()
	}
	p.own = nil
}

// PrepareApp validates an app's spec and opens what must be opened from the
// host's side. The caller closes the result once the process has its copies.
func PrepareApp(r AppRequest) (*Prepared, error) {
	return nil, refuse("process", "not there yet")
}

// PrepareExec does for an exec what PrepareApp does for an app.
func PrepareExec(r ExecRequest) (*Prepared, error) {
	return nil, refuse("process", "not there yet")
}
