// Package appimage makes an app of an image: it finds the image, unpacks it, prepares the
// app's root file system, and makes an OCI spec of the image's configuration.
//
//	Open ──► Image ──► Rootfs: mounts for Create
//	                   Spec: config.json
//
// An image is named by a reference:
//
//	/path, ./path, ../path   an OCI image layout, an archive of one or of docker save, an ACI,
//	                         or a directory that is a root file system
//	PATH@NAME                one of several images of a layout or archive: by its name, tag or
//	                         digest
//	sha256:DIGITS            an image in containerd's store, by the beginning of its digest
//	any other words          an image in containerd's store, by its name
//
// Images are not pulled from registries. containerd's clients do that.
//
// The layers of an image are unpacked once, into a store below the data directory that is
// collected (docs/layout.md). Everything in an image is hostile: digests and sizes of all
// blobs are verified, the size of the tree is bounded, and no name or link leads out of it.
// containerd's packages archive and oci apply the layers and make the spec, so both are as in
// containerd (docs/adr/0027-images-of-apps.md).
//
// The package executes nothing and mounts nothing. Only rktctl links it; the shim gets mounts
// and a spec from its caller.
package appimage
