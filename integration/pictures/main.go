// Command pictures makes the pictures of README.md from their sources:
//
//	docs/pictures/session.svg      of the block in docs/pictures/session.md
//	docs/pictures/performance.svg  of docs/results/performance.json, which
//	                               BENCH_JSON=docs/results/performance.json make bench writes
//
// The same source gives the same bytes. A source that does not exist is left out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// picture is a file that is made of another one.
type picture struct {
	source, file string // below docs/
	draw         func(source []byte) ([]byte, error)
}

var pictures = []picture{
	{"pictures/session.md", "pictures/session.svg", drawSession},
	{"results/performance.json", "pictures/performance.svg", drawPlot},
}

func main() {
	docs := flag.String("docs", "../docs", "directory of the documents")
	flag.Parse()
	for _, p := range pictures {
		if err := p.make(*docs); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}

func (p picture) make(docs string) error {
	source, err := os.ReadFile(filepath.Join(docs, p.source))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	drawing, err := p.draw(source)
	if err != nil {
		return fmt.Errorf("%s: %w", p.source, err)
	}
	return os.WriteFile(filepath.Join(docs, p.file), drawing, 0o644)
}
