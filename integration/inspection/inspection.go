// Package inspection has the types of the report that the test program makes of its
// process for the suite. The package itself reads nothing.
package inspection

// Report is the output of `testprog inspect`.
type Report struct {
	Args        []string
	Env         []string
	Cwd         string
	UID, GID    int
	PID         int
	Session     int
	Groups      []int
	Umask       int
	Hostname    string
	Kernel      string // the release of the kernel
	OOMScoreAdj string
	Status      map[string]string // /proc/self/status
	FDs         map[string]string // number → target
	Mounts      map[string]Mount  // by mount point
	Namespaces  map[string]string // by name in /proc/self/ns
	Cgroup      []string          // lines of /proc/self/cgroup
	Terminal    [3]bool           // which of 0, 1, 2 are terminals
}

// Mount is one line of mountinfo.
type Mount struct {
	Root, Type, Source string
	Options            []string
	Propagation        []string // optional fields: shared:N, master:N
}
