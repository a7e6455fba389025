// Package image knows stage1 images: it reads one from a directory, an ACI, an OCI
// layout or archive, or blobs such as those of containerd, checks what its manifest
// declares, and keeps a verified copy of its tree in a content-addressed store that
// all shims of a node share.
//
//	Locate ──► Store.Image ────► Image: name, digest, version, entrypoints, tree
//	           Import, Rendered
//
// It executes nothing and mounts nothing. Package stage1 does that with an Image.
package image
