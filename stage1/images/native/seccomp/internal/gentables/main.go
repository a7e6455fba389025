// Command gentables writes the tables of system call numbers of package seccomp.
// go generate runs it, on Debian, with the linux-libc-dev headers installed.
//
// The numbers are those of golang.org/x/sys/unix, which are generated from the
// headers of the newest kernel. x/sys has no x32, so these numbers come from
// <asm/unistd_x32.h>. Calls that the installed header lacks get their number by
// the kernel's rule that new calls have the same number on all architectures.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// firstCommon is the first number from which on Linux gives system calls the
// same number on all architectures.
const firstCommon = 424

// numbers maps the names of one architecture's system calls.
type numbers map[string]int

// output is one generated file: the tables of the architectures that a machine
// of one GOARCH executes, the native one first.
type output struct {
	goarch  string
	columns []numbers
}

func main() {
	log.SetFlags(0)
	header := flag.String("x32", "/usr/include/x86_64-linux-gnu/asm/unistd_x32.h", "the kernel's `header` of x32 numbers")
	flag.Parse()
	if err := generate(*header); err != nil {
		log.Fatalf("gentables: %v", err)
	}
}

func generate(x32Header string) error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return fmt.Errorf("finding golang.org/x/sys: %w", err)
	}
	table := make(map[string]numbers)
	for _, goarch := range []string{"amd64", "386", "arm64", "arm"} {
		path := filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+goarch+".go")
		if table[goarch], err = scan(path, `(?m)^\s*SYS_(\w+)\s*=\s*(\d+)`); err != nil {
			return err
		}
	}
	x32, err := scan(x32Header, `(?m)^#define __NR_(\w+) \(__X32_SYSCALL_BIT \+ (\d+)\)`)
	if err != nil {
		return err
	}
	addCommon(x32, table["amd64"])
	addARMPrivate(table["arm"])

	for _, out := range []output{
		{"amd64", []numbers{table["amd64"], table["386"], x32}},
		{"arm64", []numbers{table["arm64"], table["arm"]}},
	} {
		if err := os.WriteFile("table_"+out.goarch+".txt", out.format(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// scan reads the names and numbers that pattern finds in a file.
func scan(path, pattern string) (numbers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := make(numbers)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, m[1], err)
		}
		found[strings.ToLower(m[1])] = n
	}
	// These names in the headers mark a range or a mask. They are no calls.
	delete(found, "arch_specific_syscall")
	delete(found, "syscall_mask")
	if len(found) < 300 {
		return nil, fmt.Errorf("%s: only %d system calls found", path, len(found))
	}
	return found, nil
}

// addCommon adds calls to the x32 table that are newer than its header.
func addCommon(x32, amd64 numbers) {
	for name, n := range amd64 {
		if n >= firstCommon && name != "map_shadow_stack" { // for 64 bits only
			x32[name] = n
		}
	}
}

// addARMPrivate adds the calls of <asm/unistd.h> that only ARM has.
func addARMPrivate(arm numbers) {
	for i, name := range []string{"breakpoint", "cacheflush", "usr26", "usr32", "set_tls", "get_tls"} {
		arm[name] = 0xf0001 + i
	}
}

// format returns a line for each system call: its name and its numbers.
func (o output) format() []byte {
	names := make(numbers)
	for _, column := range o.columns {
		maps.Copy(names, column)
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b.WriteString(name)
		for _, column := range o.columns {
			if n, ok := column[name]; ok {
				fmt.Fprintf(&b, " %d", n)
			} else {
				b.WriteString(" -")
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
