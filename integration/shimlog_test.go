package integration

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
)

// logLine has the fields of a line of the shim.
type logLine map[string]string

// field is a field of containerd's log: a word, or a quoted text.
var field = regexp.MustCompile(`([a-z0-9]+)=("(?:[^"\\]|\\.)*"|[^ \n]*)`)

// shimLines returns the lines of shims that a log has after an offset.
func (c *column) shimLines(t *testing.T, offset int64) (lines []logLine) {
	t.Helper()
	for text := range strings.Lines(read(t, c.daemon.LogPath())[offset:]) {
		if !strings.Contains(text, " runtime="+c.runtime) {
			continue
		}
		l := logLine{}
		for _, m := range field.FindAllStringSubmatch(text, -1) {
			l[m[1]] = strings.Trim(m[2], `"`)
		}
		lines = append(lines, l)
	}
	return lines
}

// The log says to which pod, app and exec a line belongs, and which entrypoint has failed. What
// works is no line above the level debug.
func TestLinesOfTheShimNamePodAppExecAndEntrypoint(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		st, err := os.Stat(c.daemon.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		id := task.ID()
		dir, _ := c.pod(t, id)
		uuid := dir[strings.LastIndexByte(dir, '/')+1:]
		good, err := task.Exec(ctx, "good", process(t, ctx, task, "true"), cio.NullIO)
		must(t, err)
		exited := c.wait(t, good)
		must(t, good.Start(ctx))
		expectExit(t, exited, 0)
		_, err = good.Delete(ctx)
		must(t, err)
		bad, err := task.Exec(ctx, "bad", process(t, ctx, task, "/no/such/program"), cio.NullIO)
		must(t, err)
		if bad.Start(ctx) == nil {
			t.Error("a program that does not exist was started")
		}
		_, err = bad.Delete(ctx)
		must(t, err)
		ended := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, ended, 137)
		deleteTask(t, ctx, task)

		lines := c.shimLines(t, st.Size())
		failed := func(l logLine) bool { return l["msg"] == "Start failed" && l["app"] == id }
		i := slices.IndexFunc(lines, failed)
		if i < 0 {
			t.Fatalf("no line about the exec that has failed: %v", lines)
		}
		for name, want := range map[string]string{
			"level": "debug", "group": id, "pod": uuid, "app": id, "exec": "bad", "entrypoint": "enter", "stage1": c.name, "namespace": c.daemon.Namespace(),
		} {
			if lines[i][name] != want {
				t.Errorf("%s is %q, want %q, in %v", name, lines[i][name], want, lines[i])
			}
		}
		for _, l := range lines {
			if l["group"] == id && l["level"] != "debug" {
				t.Errorf("a line about a container that works: %v", l)
			}
		}
	})
}
