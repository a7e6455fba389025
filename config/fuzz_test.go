package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
)

// Nobody gets another stage1 than the configuration lets them have, whatever they ask
// for, and no key below our prefix is without effect.
func FuzzAPodHasAStage1ThatItMayHave(f *testing.F) {
	f.Add("io.containerd.rkt.v1/stage1", "fly", "io.containerd.rkt.v1.group", "g", "", "")
	f.Add("io.containerd.rkt.v1/stage", "oci", "", "", "oci", "")
	f.Add("io.containerd.rkt.v1", "", "io.containerd.rkt.v10/x", "", "native", "oci")
	f.Add("io.containerd.rkt.v1/stage1", "../x", "io.containerd.rkt.v1.", "", "", "a b")
	c := &Config{Default: "oci", Stage1s: map[string]Stage1{"fly": {PodsMayAsk: true}, "stays": {PodsMustStay: true}, "secret": {}}}
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, kind, options string) {
		if kind != "" && !IsName(kind) {
			return // a shim's own name
		}
		ask := Ask{Type: kind, Options: options, Annotations: map[string]string{key1: value1, key2: value2}}
		var unknown []string
		for key := range maps.Keys(ask.Annotations) {
			rest, ours := strings.CutPrefix(key, annotation.Prefix)
			if ours && strings.IndexAny(rest, "./") == 0 && !slices.Contains(annotation.Known(), key) {
				unknown = append(unknown, key)
			}
		}
		if err := annotation.Check(ask.Annotations); (err != nil) != (len(unknown) > 0) {
			t.Errorf("%q: %v", unknown, err)
		}
		choice, err := c.Choose(ask)
		if err != nil {
			return
		}
		if len(unknown) > 0 || !IsName(choice.Name) {
			t.Errorf("%+v has %+v, with the unknown %q", ask, choice, unknown)
		}
		plain, _, err := c.withoutAnnotation(ask)
		if err != nil {
			t.Fatal(err)
		}
		if choice.Name != plain && (choice.By != ByAnnotation || !c.Stage1s[choice.Name].PodsMayAsk || kind != "" && c.Stage1s[kind].PodsMustStay) {
			t.Errorf("%+v has %+v in place of %s", ask, choice, plain)
		}
	})
}
