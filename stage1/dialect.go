package stage1

import "github.com/rkt/containerd-shim-rkt-v1/stage1/image"

// Dialect is the way in which the entrypoints of one or several interface versions
// are called.
type Dialect interface {
	// Fields lists the fields of config.json that an image honours, as JSON pointers.
	Fields(*image.Image) []string
	// Arguments returns the arguments of a call, after argv[0].
	Arguments(*Call) []string
	// Environment writes the documents of a call and returns its environment.
	Environment(*Call) ([]string, error)
	// Descriptors returns the kinds of descriptors that a call gets in addition to
	// the lock, which every `run` gets.
	Descriptors(*Call) Inherited
}

// Inherited are kinds of descriptors of a call.
type Inherited struct {
	Streams bool // 0, 1 and 2 are the app's streams, not the error pipe
	errors  bool // the error pipe, also as abi.ErrorFD
	ready   bool
	notices bool
}
