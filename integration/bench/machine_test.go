package main

import "testing"

func TestVersionsAreFoundInWhatProgramsSay(t *testing.T) {
	for text, want := range map[string]string{
		"runc version 1.1.5+ds1\ncommit: 1\nspec: 1.0.2-dev\n":                "1.1.5+ds1",
		"containerd-shim-rkt-v1:\n  Version:    v0.1\n  Go version: go1.26\n": "v0.1",
		"something\n": "something",
	} {
		if got := parseVersion(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTheMountOfADirectoryIsTheOneNearestToIt(t *testing.T) {
	const mounts = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
22 21 0:20 / /run rw - tmpfs tmpfs rw,size=1g
23 21 0:21 / /runner rw - xfs /dev/vdb rw
24 22 0:22 / /run/twice rw - tmpfs tmpfs rw
25 24 0:23 / /run/twice rw - btrfs /dev/vdc rw,discard
`
	for dir, want := range map[string]string{
		"/tmp/x":       "ext4 with discard",
		"/run":         "tmpfs",
		"/run/x":       "tmpfs",
		"/runner/x":    "xfs",
		"/run/twice/x": "btrfs with discard",
	} {
		if got := parseMounts(mounts, dir); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}
