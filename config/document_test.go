package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
)

// document returns docs/config.md, which these tests compare with the code.
func document(t *testing.T) string {
	t.Helper()
	return read(t, "config.md")
}

// read returns a page of docs.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the document's code blocks of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```\n").FindAllStringSubmatch(document(t), -1) {
		found = append(found, m[1]+"\n")
	}
	if len(found) == 0 {
		t.Fatalf("the document has no block of %q", language)
	}
	return found
}

// example is the document's own configuration.
func example(t *testing.T) *Config {
	t.Helper()
	c, err := Parse("docs/config.md", []byte(blocks(t, "toml")[0]))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheDocumentsExampleIsRight(t *testing.T) {
	c := example(t)
	if len(c.Stage1s) != 4 || c.Default != "native" || !c.Stage1s["vm"].PodsMustStay || len(c.Stage1s["fly"].Accept) != len(builtinSet(SetAppc))+3 {
		t.Errorf("it says %+v", c)
	}
	text := blocks(t, "toml")[0]
	for _, key := range slices.Concat(topKeys(), stage1Keys(), aciKeys(), localKeys()) {
		if !strings.Contains(text, key) {
			t.Errorf("it has no %s", key)
		}
	}
}

func TestTheDocumentHasEveryKeyAndNoOther(t *testing.T) {
	var want []string
	for _, key := range stage1Keys() {
		want = append(want, "stage1.NAME."+key)
	}
	want = append([]string{keyDefault, keyRefuseUnknown}, append(want, "fields.NAME")...)
	for _, key := range aciKeys() {
		want = append(want, keyACI+"."+key)
	}
	for _, key := range localKeys() {
		want = append(want, keyLocal+"."+key)
	}
	_, table, _ := strings.Cut(document(t), "\n## Keys\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` ").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}

func TestTheDocumentHasEveryAnnotationAndNoOther(t *testing.T) {
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(io.containerd[^`]+)` ").FindAllStringSubmatch(read(t, "annotations.md"), -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, annotation.Known()) {
		t.Errorf("it has %q, want %q", got, annotation.Known())
	}
}

func TestTheDocumentSaysWhatIsInTheBuiltInSet(t *testing.T) {
	_, text, _ := strings.Cut(document(t), "The set `appc` comes with the shim.")
	text, _, _ = strings.Cut(text, "It leaves out")
	var got []string
	for _, m := range regexp.MustCompile("`(/[^`]+)`").FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, builtinSet(SetAppc)) {
		t.Errorf("it has %q, want %q", got, builtinSet(SetAppc))
	}
}

func TestTheConfigurationThatIsShippedIsRight(t *testing.T) {
	text, err := os.ReadFile("../contrib/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("contrib/config.toml", text); err != nil {
		t.Error(err)
	}
	// Check the settings that are commented out, too.
	all := regexp.MustCompile(`(?m)^# (\[.*\]|[a-z_]+ = .*)$`).ReplaceAll(text, []byte("$1"))
	all = regexp.MustCompile(`"sha512-\.\.\."`).ReplaceAll(all, []byte(`"`+aDigest+`"`))
	c, err := Parse("contrib/config.toml", all)
	if err != nil || !c.Stage1s["mine"].PodsMustStay || c.Stage1s["oci"].Digest == "" || len(c.Stage1s["mine"].Accept) <= len(builtinSet(SetAppc)) {
		t.Errorf("with what is commented out: %+v, %v", c, err)
	}
	for _, key := range slices.Concat(topKeys(), stage1Keys(), aciKeys(), localKeys()) {
		if !strings.Contains(string(text), key) {
			t.Errorf("it has no %s", key)
		}
	}
}
