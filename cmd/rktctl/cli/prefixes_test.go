package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// named are the words in the usage of a command that name something by an id, a UUID or a digest.
var named = regexp.MustCompile(`\b(POD|ID|DIGEST)\b`)

// Every verb that takes a UUID, an id or a digest takes the beginning of one. If several have it,
// the error names them all.
func TestEveryVerbTakesTheBeginningOfAnIDAndNamesTheCandidates(t *testing.T) {
	f := newFixture(t)
	first, _ := f.pod("default", "web-1", "web-1-app")
	second, _ := f.pod("default", "web-2", "web-2-app")
	data := os.Getenv(testData)
	locals := []string{"11110000-0000-4000-8000-000000000000", "11120000-0000-4000-8000-000000000000"}
	trees := []string{"sha512-abab" + strings.Repeat("0", 60), "sha512-abac" + strings.Repeat("0", 60)}
	images := []string{"sha256-" + strings.Repeat("cd", 31) + "01", "sha256-" + strings.Repeat("cd", 31) + "02"}
	for _, uuid := range locals {
		put(t, filepath.Join(data, "local", uuid, "pod.json"), `{"version":1,"state":"ready"}`)
	}
	for _, digest := range trees {
		put(t, filepath.Join(data, "trees", digest, "manifest"), "{}")
	}
	for _, id := range images {
		put(t, filepath.Join(data, "images", id, "rootfs", "file"), "")
	}
	type kind struct {
		several, one string
		candidates   []string
	}
	pods := kind{"web-", "web-1", []string{first.UUID(), second.UUID()}}
	local := kind{"111", "1111", locals}
	tree := kind{"aba", "abab", trees}
	image := kind{strings.Repeat("cd", 20), strings.Repeat("cd", 31) + "01", images}
	verbs := map[string]struct {
		kind
		after string
	}{
		"app attach": {local, "--app a"}, "app add": {local, "--app a ./none"}, "app exec": {local, "--app a -- true"}, "app list": {local, ""},
		"app logs": {local, "--app a"}, "app rm": {local, "--app a"}, "app start": {local, "--app a"},
		"app status": {local, "--app a"}, "app stop": {local, "--app a"}, "run-prepared": {local, ""},
		"attach": {pods, ""}, "cat-manifest": {pods, ""}, "debug": {pods, "--image ./none"}, "enter": {pods, ""},
		"events": {pods, ""}, "exec": {pods, "true"}, "inspect": {pods, ""}, "logs": {pods, ""}, "ps": {pods, ""},
		"rm": {pods, ""}, "status": {pods, ""}, "stop": {pods, ""}, "top": {pods, ""}, "why": {pods, ""},
		"stage1 call": {tree, "run"}, "stage1 show": {tree, ""}, "stage1 verify": {tree, ""}, "image rm": {image, ""},
	}
	everyCommand(func(cmd *cobra.Command) {
		if _, ok := verbs[pathOf(cmd)]; !ok && cmd.RunE != nil && !cmd.HasSubCommands() && named.MatchString(cmd.Use) {
			t.Errorf("%s: it is not tested with the beginning of what it names", cmd.Use)
		}
	})
	for verb, v := range verbs {
		words := func(word string) []string {
			return slices.Concat(strings.Fields(verb), []string{word}, strings.Fields(v.after))
		}
		got := rktctl(t, "", words(v.several)...)
		if got.code != exitWrong || !strings.Contains(got.stderr, v.candidates[0]) || !strings.Contains(got.stderr, v.candidates[1]) {
			t.Errorf("%s of a beginning that two have: %+v", verb, got)
		}
		got = rktctl(t, "", words(v.one)...)
		if got.code == exitUsage || strings.Contains(got.stderr, v.candidates[1]) || regexp.MustCompile("no pod has|no local pod|no digest|no unpacked").MatchString(got.stderr) {
			t.Errorf("%s of the beginning of one: %+v", verb, got)
		}
	}
}

// put writes a file, and makes the directories above it.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
