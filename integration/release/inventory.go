package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// entry is a line of the inventory.
type entry struct {
	path  string // below the prefix
	mode  os.FileMode
	kind  string // dir, file or link
	value string // SHA-256 sum of a file, target of a link
	from  string // file with the content; "" if it is text
	text  string
}

// content returns the content of a file.
func (e *entry) content() ([]byte, error) {
	if e.from == "" {
		return []byte(e.text), nil
	}
	return os.ReadFile(e.from)
}

// inventory returns the files of a package, with the installed inventory as the last of them. where is
// the word of scripts/inventory.txt for the package.
func inventory(source, bin, where string) ([]entry, error) {
	cmd := exec.Command(filepath.Join(source, "scripts/inventory"), bin, where)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("scripts/inventory: %w", err)
	}
	file := "inventory"
	if where != "package" {
		file += "-" + where
	}
	return parse(out, file)
}

// parse reads the output of scripts/inventory, which is installed as a file of a name.
func parse(out []byte, file string) ([]entry, error) {
	var all []entry
	var installed strings.Builder
	for line := range bytes.Lines(out) {
		words := strings.Fields(string(line))
		if len(words) != 5 {
			return nil, fmt.Errorf("inventory: %d words in %q", len(words), line)
		}
		e := entry{path: words[0], kind: words[2], value: words[3]}
		if e.kind != "link" {
			mode, err := strconv.ParseUint(words[1], 8, 12)
			if err != nil {
				return nil, fmt.Errorf("inventory: %s: mode %q", e.path, words[1])
			}
			e.mode = os.FileMode(mode)
		}
		if e.kind == "file" {
			e.from = words[4]
		}
		all = append(all, e)
		fmt.Fprintln(&installed, strings.Join(words[:4], " "))
	}
	if len(all) == 0 {
		return nil, errors.New("inventory: it is empty")
	}
	return append(all, entry{path: "share/" + name + "/" + file, mode: 0o644, kind: "file", text: installed.String()}), nil
}
