// Command applets contains pgrep and ipcs, which critest expects in busybox and Debian's
// busybox lacks. It is the one by whose name it is executed.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "pgrep":
		err = pgrep(os.Args[len(os.Args)-1])
	case "ipcs":
		err = ipcs()
	default:
		err = fmt.Errorf("there is no %s in it", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "applets:", err)
		os.Exit(1)
	}
}

// pgrep prints the pids of processes by their name.
func pgrep(name string) error {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, f := range files {
		comm, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(comm), name) { // the process may have ended
			fmt.Println(filepath.Base(filepath.Dir(f)))
		}
	}
	return nil
}

// ipcs prints the segments of shared memory, a line each, with key and id first.
func ipcs() error {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return err
	}
	fmt.Print(string(b))
	return nil
}
