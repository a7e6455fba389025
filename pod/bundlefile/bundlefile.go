// Package bundlefile has the names of the files that the shim makes in containers' bundles, which
// are containerd's directories. It knows nothing of their content.
package bundlefile

const (
	// Record names the pod and the app of the bundle's container. It is the first file that
	// Create makes, and the last one that is removed.
	Record = "rkt.json"
	// Loggers is a directory with a file for every logger that runs for the container.
	Loggers = "rkt-loggers"
)
