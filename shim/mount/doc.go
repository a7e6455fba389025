// Package mount mounts the root file system of a container as containerd's package of this name
// does, which links all of containerd's messages, with their descriptors and regular
// expressions: 0.2 MB of every pod's server (docs/adr/0047-messages-are-plain-structs.md).
//
// Beside the flags of mount(8) it knows what containerd's snapshotters ask for: loop devices
// (loop, direct-io), id-mapped mounts (uidmap, gidmap), more layers than the argument of mount(2)
// has room for, and the helpers of FUSE (types fuse.NAME and fuse3.NAME). Of the work of containerd's mount
// manager it does that which needs no mount (words format and mkdir). Mounts in containers are the stage1's.
package mount
