// Package config is the operator's configuration of a node's stage1s: their names and
// images, which of them pods may ask for, and which fields of a spec they may ignore.
// docs/config.md describes it for users.
//
// It owns the configuration's files and keys, the annotations below
// io.containerd.rkt.v1, and the rule by which the stage1 of a pod is chosen:
//
//	annotation, if allowed ─► runtime's type ─► runtime options ─► default
//	                      └──────────────► Choice ◄─────────────────────┘
//
// `start` reads the files. CreateSandbox reads them again if a sandbox asks for a stage1.
// A server gets the Choice and keeps nothing else. On a node without a configuration this
// costs two lookups of files that do not exist.
//
// The package opens no image and runs nothing: package stage1 checks that a path leads to
// an image with the right digest. Annotations are plain maps, because they come from a
// container's config.json and from CRI's PodSandboxConfig.
package config
