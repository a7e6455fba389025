package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMetricsAreWrittenToATextfileOrPrinted(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	madePod(t, data)
	dir := t.TempDir()
	file := filepath.Join(dir, "rkt.prom")
	const line = "rkt_pods_seen_total{stage1=\"mine\"} 1\n"
	for range 2 {
		if got := onNode(t, configured(t), data, "metrics", "--textfile", file, "--once"); got.code != exitDone || got.stdout != "" {
			t.Fatalf("%+v", got)
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s, %v", text, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left in the directory of the textfile: %v, %v", files, err)
	}
	if got := onNode(t, configured(t), data, "metrics"); got.code != exitDone || !strings.Contains(got.stdout, line) {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"--once"}, {"--once", "--spans", "x", "--listen", "y"}, {"--every", "1ms"}, {"x"}} {
		if got := onNode(t, configured(t), data, append([]string{"metrics"}, args...)...); got.code != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
	spans := filepath.Join(dir, "spans.jsonl")
	if got := onNode(t, configured(t), data, "metrics", "--spans", spans, "--once"); got.code != exitDone || got.stdout != "" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	for _, target := range []string{"grpc://127.0.0.1:1", dir} {
		if got := onNode(t, configured(t), data, "metrics", "--spans", target, "--once"); (got.code == exitWrong) != (target != dir) {
			t.Errorf("%+v", got)
		}
	}
	if got := onNode(t, configured(t), data, "metrics", "--listen", "nowhere"); got.code != exitWrong || got.stderr == "" {
		t.Errorf("%+v", got)
	}
}
