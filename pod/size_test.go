package pod

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// requirements.md#T10
func TestAnExecBeginsWithTheSizeThatItsClientHasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		checks []act // of AddExec, and of Start
		want   string
	}{
		"honoured": {[]act{fails(nil)}, `{"args":["sh"],"cwd":"/","consoleSize":{"height":12,"width":34}}`},
		"unknown":  {[]act{fails(nil), fails(errdefs.ErrNotImplemented)}, `{"args":["sh"],"cwd":"/","consoleSize":{"height":1,"width":2}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mustRun("a", "sleep 60")
			w.stage1.on(features, c.checks...)
			text := ""
			w.stage1.on(abi.Enter, func(f *fakeCall) error { text = string(f.Process.Text); return nil })
			process := readProcess(t, `{"args":["sh"],"cwd":"/","consoleSize":{"height":1,"width":2}}`)
			w.stage1.script("a/e", "exit 0")
			if err := w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: process, Stdio: &noStdio{}, Terminal: true}); err != nil {
				t.Fatal(err)
			}
			for _, size := range []Size{{Width: 5, Height: 5}, {Width: 34, Height: 12}} {
				if err := w.Resize("a", "e", size); err != nil {
					t.Fatal(err)
				}
			}
			w.mustStart("a", "e")
			if text != c.want {
				t.Errorf("the stage1 has\n%s\nwant\n%s", text, c.want)
			}
			w.mustWait("a", "e")
			w.end("a")
		})
	}
}
