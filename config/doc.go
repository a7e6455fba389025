// Package config is what the operator of a node says about stage1s: which there
// are, where their images come from, which of them pods may ask for, and which
// fields of a spec they are excused. docs/config.md says it for users.
//
// It owns the configuration's files and keys, the annotations below
// io.containerd.rkt.v1, and the rule by which the stage1 of a pod is chosen:
//
//	annotation, if allowed ─► runtime's type ─► runtime options ─► default
//	                      └──────────────► Choice ◄─────────────────────┘
//
// The files are read by `start`, and by CreateSandbox if a sandbox asks for a
// stage1; a server is handed the Choice and keeps nothing else. A node without a
// configuration costs two lookups of files that are not there.
//
// It opens no image and runs nothing: whether a path leads to an image, and one of
// the right digest, is package stage1's business. Annotations are plain maps, so
// that a container's config.json and CRI's PodSandboxConfig serve alike.
package config
