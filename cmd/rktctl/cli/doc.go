// Package cli is rktctl, the command line of a node's operator: it shows and checks pods,
// stage1s and the configuration.
//
//	New: the tree of commands
//	  ├─► a file for each verb, with a page in the directory help
//	  └─► output: text, JSON or YAML
//
// It needs no shim: it reads the configuration, the images and the pods as the shim does.
// Only `stage1 import` of an image in containerd's store needs a containerd.
//
// The package does not read the process's arguments and environment: Env has them, so that
// tests and the generator of the manual pages can call it.
package cli
