// Package doctor examines a node: kernel, cgroups, containerd's configuration, the files of
// the installation, the data directory and the stage1s. It changes nothing and needs no
// network.
//
// A check is a method of examination, and adds findings. What a check looks at comes from
// Node, so that tests can make a broken node.
package doctor
