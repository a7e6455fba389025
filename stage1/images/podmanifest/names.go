package podmanifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fallback is the /etc/hosts of an app that has none.
const fallback = "127.0.0.1 localhost localdomain\n"

// NameFiles returns the files for the resolution of names that replace those of an app.
// mode is the value of --dns-conf-mode: resolv=MODE,hosts=MODE. The files are the host's,
// or those that stage 0 has left in the stage1's tree. By default an app keeps its own
// files, and gets an /etc/hosts if it has none. root is the app's root.
func NameFiles(mode, root string) ([]Shown, error) {
	var all []Shown
	for pair := range strings.SplitSeq(mode, ",") {
		file, of, _ := strings.Cut(pair, "=")
		name, known := map[string]string{"resolv": "resolv.conf", "hosts": "hosts"}[file]
		switch {
		case mode == "":
			return nil, nil
		case !known || !slices.Contains([]string{"host", "stage0", "default", "none"}, of) || file == "hosts" && of == "none":
			return nil, fmt.Errorf("--dns-conf-mode=%s: %q is not known", mode, pair)
		case of == "default" && file == "hosts":
			if err := makeHosts(root); err != nil {
				return nil, err
			}
		case of == "host":
			all = append(all, nameFile(filepath.Join("/etc", name), name))
		case of == "stage0":
			path := filepath.Join("stage1/rootfs/etc", "rkt-"+name)
			if _, err := os.Stat(path); err == nil {
				all = append(all, nameFile(path, name))
			}
		}
	}
	return all, nil
}

func nameFile(source, name string) Shown {
	flat := false
	return Shown{&Volume{Name: name, Kind: "host", Source: source, Recursive: &flat}, "/etc/" + name, true}
}

// makeHosts makes /etc/hosts in an app that has /etc and lacks that file.
func makeHosts(root string) error {
	dir, err := os.OpenRoot(root) // links cannot lead out of it
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.OpenFile("etc/hosts", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(fallback)
	return err
}
