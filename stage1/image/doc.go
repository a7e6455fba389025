// Package image handles stage1 images. It reads an image from a directory, an ACI,
// an OCI layout or archive, or blobs such as those of containerd, and checks the
// declarations in its manifest. It keeps a verified copy of the image's tree in a
// content-addressed store that all shims of a node share.
//
//	Locate ──► Store.Image ────► Image: name, digest, version, entrypoints, tree
//	           Import, Rendered
//
// It executes nothing and mounts nothing. Package stage1 does that with an Image.
package image
