package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// testData is the environment variable with the data directory of these tests, which must
// not read that of the machine.
const testData = "TEST_RKT_DATA_DIR"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rktctl-test-")
	if err != nil {
		panic(err)
	}
	os.Setenv(testData, filepath.Join(dir, "absent"))
	code := wait.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// answer has the exit code and the output of a call of rktctl.
type answer struct {
	stdout, stderr string
	code           int
}

// rktctl calls the command as on a node with a configuration, or without one.
func rktctl(t *testing.T, file string, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	vars := map[string]string{config.FileVariable: file, config.DataDirVariable: os.Getenv(testData)}
	e := &Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(name string) string { return vars[name] }}
	code := Run(t.Context(), e, args)
	return answer{stdout.String(), stderr.String(), code}
}

func configured(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bundled puts an image beside a shim in $PATH.
func bundled(t *testing.T, name string) {
	t.Helper()
	bin := t.TempDir()
	if err := os.Mkdir(filepath.Join(bin, "stage1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(stage1test.Dir(t, nil), filepath.Join(bin, "stage1", name)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "containerd-shim-rkt-v1"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
}

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	i, err := image.ACIs{}.Inspect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return i.Digest()
}

func TestConfigCheckFindsNothingWrongInWhatIsRight(t *testing.T) {
	bundled(t, "native")
	image := stage1test.Dir(t, nil)
	file := configured(t, "default = 'native'", "[stage1.native]", "[stage1.mine]", "path = '"+image+"'", "digest = '"+digestOf(t, image)+"'")
	for _, got := range []answer{rktctl(t, file, "config", "check"), rktctl(t, "", "config", "check", file), rktctl(t, configured(t), "config", "check")} {
		if got != (answer{}) {
			t.Errorf("%+v", got)
		}
	}
}

func TestConfigCheckNamesTheLineOfWhatIsWrong(t *testing.T) {
	bundled(t, "native")
	image := stage1test.Dir(t, nil)
	broken := stage1test.Dir(t, nil)
	if err := os.Remove(filepath.Join(broken, "rootfs/run")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lines []string
		want  []string // lines of stdout, after the file's name
	}{
		"syntax": {[]string{"default ="}, []string{":1:"}},
		"keys and values": {
			[]string{"[stage1.a]", "pth = '/x'", "digest = 'x'"},
			[]string{":2:1: unknown key stage1.a.pth: the nearest valid one is path", ":3:1: stage1.a.digest"},
		},
		"a default that is nowhere":          {[]string{"default = 'fly'"}, []string{":1:1: default: there is no stage1 called fly"}},
		"a stage1 that is nowhere":           {[]string{"", "[stage1.fly]"}, []string{":2:2: stage1.fly: there is no stage1 called fly"}},
		"a path that leads nowhere":          {[]string{"[stage1.fly]", "path = '/no/such/image'"}, []string{":2:1: stage1.fly.path: stage1 image /no/such/image"}},
		"an image that is none":              {[]string{"[stage1.fly]", "path = '" + broken + "'"}, []string{":2:1: stage1.fly.path: stage1 image " + broken}},
		"another digest":                     {[]string{"stage1.mine.path = '" + image + "'", "stage1.mine.digest = 'sha512-" + strings.Repeat("0", 128) + "'"}, []string{":2:1: stage1.mine.digest: the image " + image + " has the digest " + digestOf(t, image)}},
		"another digest of one that is here": {[]string{"stage1.native.digest = 'sha512-" + strings.Repeat("0", 128) + "'"}, []string{":1:1: stage1.native.digest: the image "}},
	} {
		t.Run(name, func(t *testing.T) {
			file := configured(t, c.lines...)
			got := rktctl(t, "", "config", "check", file)
			lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
			if got.code != exitWrong || got.stderr != "" || len(lines) != len(c.want) {
				t.Fatalf("code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], file+want) {
					t.Errorf("line %q, want %s%s", lines[i], file, want)
				}
			}
		})
	}
}

func TestStage1ListTellsWhatThereIs(t *testing.T) {
	bundled(t, "native")
	image := stage1test.Dir(t, nil)
	file := configured(t, "[stage1.mine]", "path = '"+image+"'", "digest = '"+digestOf(t, image)+"'", "pods_may_ask = true", "accept = ['/hostname']",
		"[stage1.gone]", "path = '/no/such/image'", "pods_may_leave = false")
	got := rktctl(t, file, "stage1", "list")
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != exitWrong || len(lines) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, want := range [][]string{
		{"NAME", "POD ANNOTATION", "IMAGE", "DIGEST"},
		{"gone", "-", "/no/such/image", "no such file"},
		{"mine", "may ask", image, "pinned " + digestOf(t, image)},
		{"native (default)", "-", "stage1/native", "sha512-"},
	} {
		for _, w := range want {
			if !strings.Contains(lines[i], w) {
				t.Errorf("line %q is without %s", lines[i], w)
			}
		}
	}

	got = rktctl(t, file, "stage1", "list", "--json")
	var list []listed
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list) != 3 || got.code != exitWrong {
		t.Fatalf("%v, %+v", err, got)
	}
	mine := list[1]
	if mine.Name != "mine" || mine.Digest != digestOf(t, image) || !mine.Pinned || !mine.PodsMayAsk || !mine.PodsMayLeave || len(mine.Accept) != 1 || mine.Error != "" {
		t.Errorf("%+v", mine)
	}
	if list[0].PodsMayLeave || list[0].Error == "" || !list[2].Default {
		t.Errorf("%+v", list)
	}

	if got := rktctl(t, configured(t), "stage1", "list"); got.code != exitDone || strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("without a configuration: %+v", got)
	}
}

// nobody calls rktctl as the user nobody, on a thread that ends with the call.
func nobody(t *testing.T, file string, args ...string) answer {
	t.Helper()
	const uid = 65534
	done := make(chan answer, 1)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- answer{stderr: errno.Error(), code: -1}
			return
		}
		done <- rktctl(t, file, args...)
	}()
	return <-done
}

func TestStage1ListNamesWhatItMayNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: trees belong to root")
	}
	bundled(t, "native")
	bundle := filepath.Join(os.Getenv("PATH"), "stage1/native")
	open := stage1test.Dir(t, nil)
	data := filepath.Join(t.TempDir(), "rkt")
	t.Setenv(testData, data)
	if got := rktctl(t, "", "stage1", "import", stage1test.Dir(t, nil)); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	digest := digestOf(t, open)
	file := configured(t, "[stage1.open]", "path = '"+open+"'", "[stage1.imported]", "digest = '"+digest+"'")
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(os.Getenv("PATH")): 0o755, filepath.Dir(open): 0o755, filepath.Dir(filepath.Dir(data)): 0o755,
		filepath.Dir(filepath.Dir(file)): 0o755, file: 0o644,
		filepath.Join(bundle, "rootfs/run"): 0o711, filepath.Join(data, "trees"): 0o700,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	got := nobody(t, file, "stage1", "list")
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != exitWrong || len(lines) != 4 {
		t.Fatalf("%+v", got)
	}
	trees := filepath.Join(data, "trees") + ": permission denied"
	for i, want := range []string{"NAME", trees, "user 65534 may not read it: ", digest} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
	if want := filepath.Join(bundle, "rootfs/run") + ": permission denied"; !strings.Contains(lines[2], want) {
		t.Errorf("line %q, want %s", lines[2], want)
	}
	if !strings.Contains(got.stderr, trees) {
		t.Errorf("stderr %q, want %s", got.stderr, trees)
	}
}

func TestWhatIsImportedIsUsedByItsDigestAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: trees belong to root")
	}
	bundled(t, "native")
	t.Setenv(testData, filepath.Join(t.TempDir(), "rkt"))
	image := stage1test.Dir(t, nil)
	digest := digestOf(t, image)
	got := rktctl(t, "", "stage1", "import", image)
	if got.code != exitDone || !strings.HasPrefix(got.stdout, "[stage1.") || !strings.HasSuffix(got.stdout, "\ndigest = \""+digest+"\"\n") {
		t.Fatalf("%+v", got)
	}
	if err := os.RemoveAll(image); err != nil {
		t.Fatal(err)
	}
	list := rktctl(t, configured(t), "stage1", "list")
	if list.code != exitDone || !strings.Contains(list.stdout, "(not configured)") || !strings.Contains(list.stdout, "imported from "+image) {
		t.Errorf("%+v", list)
	}
	file := configured(t, "default = 'mine'", "[stage1.mine]", "digest = '"+digest+"'")
	if got := rktctl(t, file, "config", "check"); got != (answer{}) {
		t.Errorf("%+v", got)
	}
	list = rktctl(t, file, "stage1", "list")
	if list.code != exitDone || !strings.Contains(list.stdout, "mine (default)") || !strings.Contains(list.stdout, "pinned "+digest) || strings.Contains(list.stdout, "not configured") {
		t.Errorf("%+v", list)
	}

	other := strings.Replace(digest, digest[7:9], map[bool]string{true: "00", false: "11"}[digest[7:9] != "00"], 1)
	file = configured(t, "[stage1.mine]", "digest = '"+other+"'")
	if got := rktctl(t, file, "config", "check"); got.code != exitWrong || !strings.HasPrefix(got.stdout, file+":2:1: stage1.mine.digest: there is no stage1 called mine") {
		t.Errorf("%+v", got)
	}
	for source, want := range map[string]string{image: image, "example.com/x:v1": "no/such/socket"} {
		got := rktctl(t, "", "stage1", "import", "--address", "/no/such/socket", source)
		if got.code != exitWrong || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: %+v", source, got)
		}
	}
}

func TestAnImportIsForgottenByTheBeginningOfItsDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: trees belong to root")
	}
	bundled(t, "native")
	t.Setenv(testData, filepath.Join(t.TempDir(), "rkt"))
	var digests []string
	for _, name := range []string{"one", "two"} {
		image := stage1test.Image{Annotations: map[string]string{"example.com/which": name}}.Dir(t)
		digests = append(digests, digestOf(t, image))
		if got := rktctl(t, "", "stage1", "import", image); got.code != exitDone {
			t.Fatalf("%+v", got)
		}
	}
	if got := rktctl(t, "", "stage1", "gc", "--forget", "sha512-"); got.code != exitWrong || !strings.Contains(got.stderr, "2 imported") {
		t.Errorf("%+v", got)
	}
	if got := rktctl(t, "", "stage1", "gc", "--forget", "xyz"); got.code != exitWrong || !strings.Contains(got.stderr, "xyz was not imported") {
		t.Errorf("%+v", got)
	}
	for i, word := range []string{digests[0][:20], strings.TrimPrefix(digests[1], "sha512-")[:12]} {
		got := rktctl(t, "", "stage1", "gc", "--forget", word)
		if got.code != exitDone || strings.Contains(rktctl(t, configured(t), "stage1", "list").stdout, digests[i]) {
			t.Errorf("%s: %+v", word, got)
		}
	}
}

func TestADirectoryThatIsTakenForANameIsPointedAt(t *testing.T) {
	image := stage1test.Dir(t, nil)
	t.Chdir(filepath.Dir(image))
	for _, verb := range [][]string{{"verify"}, {"import", "--address", "/no/such/socket"}} {
		got := rktctl(t, "", slices.Concat([]string{"stage1"}, verb, []string{filepath.Base(image)})...)
		if got.code != exitWrong || !strings.Contains(got.stderr, "say ./"+filepath.Base(image)) {
			t.Errorf("%s: %+v", verb, got)
		}
		got = rktctl(t, "", slices.Concat([]string{"stage1"}, verb, []string{"nothing"})...)
		if got.code != exitWrong || strings.Contains(got.stderr, "say ./") {
			t.Errorf("%s of an image that does not exist: %+v", verb, got)
		}
	}
}

func TestACommandLineThatIsWrongIsToldSo(t *testing.T) {
	for _, args := range [][]string{
		{}, {"confg"}, {"config"}, {"config", "chek"}, {"config", "check", "a", "b"}, {"stage1", "list", "x"}, {"stage1", "list", "--jsn"}, {"help", "x"},
		{"stage1", "import"}, {"stage1", "import", "a", "b"}, {"stage1", "import", "--socket", "x", "a"},
		{"stage1", "gc", "x"}, {"stage1", "gc", "--dry-run", "--forget", "x"},
	} {
		if got := rktctl(t, "", args...); got.code != exitUsage || !strings.Contains(got.stderr, "see rktctl help") || got.stdout != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := rktctl(t, "", "config", "check", "/no/such/file"); got.code != exitWrong || !strings.Contains(got.stderr, "/no/such/file") {
		t.Errorf("a file that is not there: %+v", got)
	}
	if got := rktctl(t, configured(t, "x = 1"), "stage1", "list"); got.code != exitWrong || !strings.Contains(got.stderr, ":1:1: unknown key x") {
		t.Errorf("a list with a wrong configuration: %+v", got)
	}
}

// everyCommand calls f with all commands of rktctl, except those that cobra makes.
func everyCommand(f func(*cobra.Command)) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		f(c)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(New(&Env{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}))
}

func TestEveryVerbHasAPage(t *testing.T) {
	everyCommand(func(c *cobra.Command) {
		words := strings.Fields(c.CommandPath())[1:]
		heads := []string{"NAME\n    " + c.CommandPath() + " - " + c.Short, "\nSYNOPSIS\n    " + c.CommandPath()}
		if c.HasSubCommands() {
			heads = append(heads, "\nCOMMANDS\n")
			for _, sub := range c.Commands() {
				heads = append(heads, sub.Short)
			}
		} else {
			heads = append(heads, "\nDESCRIPTION\n    ", "\nEXIT STATUS\n    ")
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				heads = append(heads, "--"+f.Name)
			}
		})
		for _, args := range [][]string{append([]string{"help"}, words...), append(words, "--help")} {
			got := rktctl(t, "", args...)
			for _, head := range heads {
				if got.code != exitDone || !strings.Contains(got.stdout, head) || got.stderr != "" {
					t.Errorf("%q: code %d, %s, no %q in %q", args, got.code, got.stderr, head, got.stdout)
				}
			}
			for _, line := range strings.Split(got.stdout, "\n") {
				if len([]rune(line)) > 96 || strings.HasPrefix(line, "#") {
					t.Errorf("%q: line %q", args, line)
				}
			}
		}
	})
	for _, args := range [][]string{{"version"}, {"--version"}, {"-v"}} {
		if got := rktctl(t, "", args...); got.code != exitDone || !strings.HasPrefix(got.stdout, "rktctl ") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// docs/rktctl.md has a row for each verb.
func TestTheTableOfVerbsIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../../docs/rktctl.md")
	if err != nil {
		t.Fatal(err)
	}
	var verbs, rows []string
	everyCommand(func(c *cobra.Command) {
		if !c.HasSubCommands() {
			verbs = append(verbs, strings.Join(strings.Fields(c.CommandPath())[1:], " "))
		}
	})
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "| `"); found {
			name, _, _ = strings.Cut(name, "`")
			rows = append(rows, name)
		}
	}
	rows = slices.DeleteFunc(rows, func(name string) bool { return name == "completion" })
	slices.Sort(verbs)
	slices.Sort(rows)
	if !slices.Equal(verbs, rows) {
		t.Errorf("the table has %q, and rktctl %q", rows, verbs)
	}
}

func TestAGroupWithoutACommandShowsItsCommands(t *testing.T) {
	for _, args := range [][]string{{}, {"stage1"}} {
		got := rktctl(t, "", args...)
		if got.code != exitUsage || !strings.Contains(got.stderr, "\nCOMMANDS\n") || !strings.Contains(got.stderr, "no command: see rktctl help") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestAnUnknownCommandNamesTheNearestOnes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stge1", "list"}, `unknown command "stge1", meant is perhaps stage1: see rktctl help`},
		{[]string{"stage1", "lst"}, `stage1: unknown command "lst", meant is perhaps list: see rktctl help stage1`},
		{[]string{"help", "stage1", "lst"}, `stage1: unknown command "lst", meant is perhaps list: see rktctl help stage1`},
		{[]string{"stage1", "xyzzy"}, `stage1: unknown command "xyzzy": see rktctl help stage1`},
	} {
		if got := rktctl(t, "", c.args...); got.code != exitUsage || got.stderr != "rktctl: "+c.want+"\n" {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
}

func TestShellsCompleteCommandsAndOptions(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := rktctl(t, "", "completion", shell); got.code != exitDone || !strings.Contains(got.stdout, "rktctl") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for _, c := range []struct{ begun, want string }{
		{"stage1 l", "list\t"}, {"stage1 gc --dry", "--dry-run\t"}, {"stage1 list --output y", "yaml\n"}, {"help stage1 ver", "verify\t"},
	} {
		got := rktctl(t, "", append([]string{"__complete"}, strings.Split(c.begun, " ")...)...)
		if got.code != exitDone || !strings.Contains(got.stdout, c.want) {
			t.Errorf("%s: %+v", c.begun, got)
		}
	}
}
