package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const docs = "../../docs"

// Each picture is that of its source, and README.md shows it.
func TestThePicturesAreThoseOfTheirSources(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		source, err := os.ReadFile(filepath.Join(docs, p.source))
		shown := strings.Contains(string(readme), "(docs/"+p.file+")")
		if errors.Is(err, fs.ErrNotExist) {
			if shown {
				t.Errorf("README.md shows %s, and there is no %s", p.file, p.source)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.draw(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(docs, p.file))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the picture of %s (%v): go -C integration run ./pictures", p.file, p.source, err)
		}
		if !shown {
			t.Errorf("README.md does not show %s", p.file)
		}
	}
}

// texts returns the texts of an SVG, in their order, and fails if it is no XML.
func texts(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	inside := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v: %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				all = append(all, string(token))
			}
		}
	}
}

func TestATerminalHasTheLinesOfItsSession(t *testing.T) {
	svg, err := drawSession([]byte("# Page\n```console\n# echo '<&>'  x\n<&>  x\n\n# true\n```\nmore\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := texts(t, svg), []string{"# echo '<&>'  x", "<&>  x", "# true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := strings.Count(string(svg), `class="command"`); n != 2 {
		t.Errorf("%d commands", n)
	}
	if _, err := drawSession([]byte("# Page\n```sh\ntrue\n```\n")); err == nil {
		t.Error("a page without a session has a picture")
	}
}

func TestAPlotHasTheMediansOfItsSamples(t *testing.T) {
	source, err := os.ReadFile("testdata/performance.json")
	if err != nil {
		t.Fatal(err)
	}
	svg, err := drawPlot(source)
	if err != nil {
		t.Fatal(err)
	}
	all := texts(t, svg)
	for _, want := range []string{
		"ctr run --rm … true", "20.0 ms (0.50 ×)", "40.0 ms",
		"PSS of a pod's overhead", "6.00 MB (1.50 ×)", "4.00 MB",
		"Linux 6.1, 2 × Processor <&>, containerd 2.4.2, runc 1.1.5",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	// The longest is the line to native's 90th percentile of memory, 1.5 times runc's median.
	for _, want := range []string{`width="113.3" height="14.0" fill="` + oursColour, `width="226.7" height="14.0" fill="` + theirColour, `width="340.0" height="14.0" fill="` + oursColour} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no bar with %s in\n%s", want, svg)
		}
	}
	again, err := drawPlot(source)
	if err != nil || !bytes.Equal(svg, again) {
		t.Errorf("the second picture differs: %v", err)
	}
}

func TestSamplesOfWhichNoPlotCanBeMadeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{": "unexpected end", `{"version": 2}`: "version 2", `{"version": 1}`: "no operation",
		`{"version": 1, "operations": [{"name": "PSS of a pod's overhead", "samples": {"native": [1], "runc": [0]}}]}`: "medians are 1 and 0",
	} {
		if _, err := drawPlot([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
