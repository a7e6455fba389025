package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes which files the packages have, and which Go modules the programs among them
// were built from, as the programs themselves record that.
func writeSBOM(r *release, dir string) error {
	bom, err := r.bom()
	if err != nil {
		return err
	}
	return create(r.path(dir, ".cdx.json"), func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

func (r *release) bom() (*cdx.BOM, error) {
	root := cdx.Component{
		BOMRef: r.name, Type: cdx.ComponentTypeApplication, Name: r.name, Version: r.version,
		PackageURL: "pkg:generic/" + r.name + "@" + r.version + "?arch=" + r.arch,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	var components []cdx.Component
	var inRoot []string
	var dependencies []cdx.Dependency
	modules := map[string]cdx.Component{}
	for _, e := range r.entries {
		if e.kind != "file" || e.from == "" {
			continue
		}
		ref := "file:" + e.path
		components = append(components, cdx.Component{
			BOMRef: ref, Type: cdx.ComponentTypeFile, Name: e.path,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: e.value}},
		})
		inRoot = append(inRoot, ref)
		build, err := buildinfo.ReadFile(e.from)
		if err != nil { // not a Go program
			continue
		}
		var uses []string
		for _, m := range append(slices.Clone(build.Deps), standardLibrary(build)) {
			c := module(m)
			modules[c.BOMRef] = c
			uses = append(uses, c.BOMRef)
		}
		slices.Sort(uses)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &uses})
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("SBOM: none of %d files is a Go program", len(components))
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	if r.kernel != nil {
		c := r.kernel.component()
		components, inRoot = append(components, c), append(inRoot, c.BOMRef)
	}
	dependencies = append([]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &inRoot}}, dependencies...)

	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &root}
	bom.Components, bom.Dependencies = &components, &dependencies
	return bom, nil
}

func standardLibrary(build *buildinfo.BuildInfo) *debug.Module {
	return &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(build.GoVersion, "go")}
}

func module(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	url := "pkg:golang/" + m.Path + "@" + m.Version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
}
