// Package first answers ordinary calls of the shim before other packages are initialised: most of
// the time of such a call would be their initialisation (docs/adr/0034-early-answers.md). To
// import it is all that a main function has to do.
//
// Go initialises packages in the order of their paths, each as soon as the packages that it
// imports are ready. This package imports little, and its path precedes google.golang.org. A test
// lists the packages that are initialised before it.
package first

import (
	"fmt"
	"os"
	filepath "path" // path/filepath is initialised late

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/pod/removal"
)

func init() {
	answered, err := early.Answered(os.Args, os.Stdin, os.Stdout, early.Bundle{
		Records: []string{bundlefile.Record, bundlefile.Loggers}, Await: removal.Await,
	})
	switch {
	case answered:
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}
