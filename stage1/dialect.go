package stage1

import "github.com/rkt/containerd-shim-rkt-v1/stage1/image"

// dialect is how entrypoints are called: an interface version, or several.
type dialect interface {
	// fields lists the fields of config.json that an image honours, as JSON pointers.
	fields(*image.Image) []string
	// arguments returns the arguments of a call, after argv[0].
	arguments(*call) []string
	// environment writes the documents of a call and returns its environment.
	environment(*call) ([]string, error)
	// descriptors says which descriptors a call gets, beside the lock, which is every
	// `run`'s.
	descriptors(*call) inherited
}

// inherited are descriptors of a call.
type inherited struct {
	streams bool // 0, 1 and 2 are the app's, and not the error pipe
	errors  bool // the error pipe, also as abi.ErrorFD
	ready   bool
	notices bool
}
