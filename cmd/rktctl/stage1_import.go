package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func stage1Import() *verb {
	return &verb{
		words:    []string{"stage1", "import"},
		synopsis: "stage1 import [OPTIONS] SOURCE",
		summary:  "bring a stage1 image into the tree store, by its digest",
		text: `DESCRIPTION
    Verifies the image SOURCE, puts its tree into the store from which pods
    execute it, and writes its name and digest, as the lines that the
    configuration takes:

        [stage1.NAME]
        digest = "sha512-..."

    A digest alone is enough there: the image is in the store, and SOURCE is not
    needed any more.

    SOURCE is the name of an image that containerd has (ctr image pull), or, if
    it begins with "/", "./" or "../", the path of a directory, an ACI, an OCI
    layout, or an archive of one (ctr image export). An OCI image that holds a
    stage1 has the file manifest and the directory rootfs at its top; its layers
    are packed with gzip or not at all. Every blob has to have its digest. Of an
    image for several platforms it is the one for this machine.

    Images that an ACI depends on are looked for beside it, and then in the
    directories of aci.dependencies. Where the configuration sets aci.keyring, an ACI
    has to have a signature, SOURCE.asc, by a key in that directory, and so has what
    it depends on and does not name by its image id; this is where it is verified,
    and the shim uses no ACI that was not imported so.

    A tree that was changed on the disk is put right by importing the image again.
    What was imported stays until rktctl stage1 gc --forget.

OPTIONS
    --address PATH      containerd's socket (/run/containerd/containerd.sock)
    --namespace NAME    containerd's namespace (default)

EXIT STATUS
    0    the image is in the store
    1    it is not
    2    the command line is wrong

ENVIRONMENT
    RKT_CONFIG      the configuration, instead of /etc/containerd-shim-rkt/config.toml
    RKT_DATA_DIR    the data directory, instead of /var/lib/rkt. The shim looks for
                    it in containerd's environment, not in yours.

EXAMPLE
    # ctr image pull registry.example/stage1-vm:v1
    # rktctl stage1 import registry.example/stage1-vm:v1 \
          >/etc/containerd-shim-rkt/config.toml.d/vm.toml
`,
		run: runStage1Import,
	}
}

func runStage1Import(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	address := flags.String("address", "/run/containerd/containerd.sock", "")
	namespace := flags.String("namespace", "default", "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() != 1 {
		err = fmt.Errorf("one SOURCE, and not %d", flags.NArg())
	}
	if err != nil {
		return fmt.Errorf("stage1 import: %v: %w", err, errUsage)
	}
	c, err := config.Open(e.getenv)
	if err != nil {
		return err
	}
	store, err := image.OpenStore(dataDir(e))
	if err != nil {
		return err
	}
	source := flags.Arg(0)
	i, err := importFrom(ctx, store.With(rulesOf(c)), source, *address, *namespace)
	if err != nil {
		return meantPath(source, err)
	}
	if err := i.Close(); err != nil {
		return err
	}
	if signer := store.Signer(i); signer != "" {
		fmt.Fprintf(e.stdout, "# signed by %s\n", signer)
	}
	_, err = fmt.Fprintf(e.stdout, "[stage1.%s]\ndigest = %q\n", tableName(i.Name()), i.Digest())
	return err
}

// importFrom imports from a path, or from containerd.
func importFrom(ctx context.Context, store *image.Store, source, address, namespace string) (i *image.Image, err error) {
	if isPath(source) {
		return store.ImportPath(ctx, source)
	}
	client, err := dialContainerd(address, namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	top, err := client.image(ctx, source)
	if err != nil {
		return nil, err
	}
	return store.Import(ctx, client, top, source)
}

func isPath(source string) bool {
	return strings.HasPrefix(source, "/") || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

// meantPath adds a hint to an error about a name, if a file of that name exists in the
// working directory: a path needs a slash.
func meantPath(name string, err error) error {
	if err == nil || isPath(name) {
		return err
	}
	if _, statErr := os.Stat(name); statErr != nil {
		return err
	}
	return fmt.Errorf("%w; if you mean the one in this directory, say ./%s", err, name)
}

func dataDir(e *env) string { return cmp.Or(e.getenv(config.DataDirVariable), config.DataDir) }

// tableName returns name, or the placeholder NAME if no stage1 of the configuration can have
// that name.
func tableName(name string) string {
	if config.IsName(name) {
		return name
	}
	return "NAME"
}
