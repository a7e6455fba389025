package machine

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// The guest's processors are threads of QEMU. containerd may have been kept on the CPUs of the host's own processes.
func TestAProgramOfAMachineMayRunOnEveryCPU(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("needs two CPUs")
	}
	p, err := start(&Config{Children: Children}, &program{
		argv: []string{"/bin/busybox", "nproc"},
		prepare: func() error {
			var one unix.CPUSet
			for cpu := 0; one.Count() == 0; cpu++ {
				if all.IsSet(cpu) {
					one.Set(cpu)
				}
			}
			return unix.SchedSetaffinity(0, &one)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.end()
	if got, want := p.said(), fmt.Sprint(all.Count()); got != want {
		t.Errorf("the program has %s CPUs, want %s", got, want)
	}
}
